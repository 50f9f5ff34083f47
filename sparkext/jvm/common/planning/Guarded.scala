package org.apache.spark.sql.sparkext.planning

import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import com.google.common.cache.CacheBuilder

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.sparkext.protocol.Reason

/** An invalid hint: the only error that may fail a query while it is planned. */
class RefusedException(message: String) extends IllegalArgumentException(message)

/** Keeps planning from failing a query: an exception in our code becomes a reason to leave the plan to Spark.
  *
  * Not caught are `RefusedException`s, which are intended, interruptions, and errors that no process survives, such as
  * a lack of memory.
  */
object Guarded extends Logging {
  private val Remembered = 1000L
  private val Longest = 500

  /** Why joins are left to Spark, stored at a logical plan of which the physical plan has no trace. */
  val Declined: TreeNodeTag[String] = TreeNodeTag[String]("sparkext.declined")

  /** Why a join is left to Spark, stored at a logical join that was planned without a note in the physical plan. */
  val DeclinedJoin: TreeNodeTag[String] = TreeNodeTag[String]("sparkext.declinedJoin")

  /** For tests: the exception to throw when the part with this name starts. */
  private val faults = new ConcurrentHashMap[String, Throwable]()

  /** The problems that have been logged. Planning repeats itself, and so do its problems. */
  private val logged = CacheBuilder.newBuilder().maximumSize(Remembered).build[String, java.lang.Boolean]().asMap

  /** The result of `body`, or its exception as a reason. `part` names it in the log. */
  def apply[T](part: String)(body: => T): Either[String, T] =
    try {
      Option(faults.get(part)).foreach(fault => throw fault)
      Right(body)
    } catch {
      case refused: RefusedException => throw refused
      case problem if isOurs(problem) => Left(describe(part, problem))
    }

  /** The same for code that may decline by itself. */
  def either[T](part: String)(body: => Either[String, T]): Either[String, T] = apply(part)(body).flatten

  /** The result of a rule on logical plans. If it fails, the plan stays unchanged, with the reason stored at it. */
  def rule(part: String, plan: LogicalPlan)(body: => LogicalPlan): LogicalPlan =
    apply(part)(body) match {
      case Right(changed) => changed
      case Left(reason) =>
        plan.setTagValue(Declined, reason)
        plan
    }

  /** For tests: throw `fault` whenever `part` starts, until `mend`. */
  def inject(part: String, fault: Throwable): Unit = faults.put(part, fault)
  def mend(): Unit = faults.clear()

  /** In addition to `NonFatal` errors, missing classes and deep recursion are caught: a process survives them. */
  private def isOurs(problem: Throwable): Boolean = problem match {
    case NonFatal(_) | _: LinkageError | _: StackOverflowError => true
    case _ => false
  }

  /** Log a text, once. */
  def warn(text: String): Unit = if (isNew(text)) logWarning(text)

  private def isNew(text: String): Boolean = logged.putIfAbsent(text, true) == null

  private def describe(part: String, problem: Throwable): String = {
    val what = problem.toString.linesIterator.nextOption().getOrElse("").take(Longest)
    if (isNew(s"$part $what")) {
      logWarning(s"planning pipelined joins failed ($part), so Spark plans without them: please report this", problem)
    }
    Reason("PLANNING_FAILED", what)
  }
}
