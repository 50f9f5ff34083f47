package org.apache.spark.sql.sparkext

import java.util.{Collections, LinkedHashMap, Map => JavaMap}
import java.util.concurrent.ConcurrentHashMap

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.TreeNodeTag

/** A hint that cannot be read: the one thing that may fail a query while it is planned. */
class RefusedException(message: String) extends IllegalArgumentException(message)

/** Keeps planning from failing a query: what is thrown while a part of ours runs is a reason to leave the plan to Spark.
  *
  * Not caught are refusals, which are meant, interruptions, and what no process survives, such as a lack of memory.
  */
object Guarded extends Logging {
  private val Remembered = 1000
  private val Longest = 500

  /** Why joins are left to Spark, at a logical plan that keeps nothing of this in the physical one. */
  val Declined: TreeNodeTag[String] = TreeNodeTag[String]("sparkext.declined")

  /** Why a join is left to Spark, at a join of the logical plan that was planned without a note in the physical one. */
  val DeclinedJoin: TreeNodeTag[String] = TreeNodeTag[String]("sparkext.declinedJoin")

  /** For tests: what is thrown wherever a part of this name begins. */
  private val faults = new ConcurrentHashMap[String, Throwable]()

  /** What has been logged. Planning repeats itself, and so does what is wrong with it. */
  private val logged = Collections.synchronizedMap(new LinkedHashMap[String, java.lang.Boolean]() {
    override def removeEldestEntry(eldest: JavaMap.Entry[String, java.lang.Boolean]): Boolean = size > Remembered
  })

  /** What `body` gives; or what it was that it threw. `part` names it in the log. */
  def apply[T](part: String)(body: => T): Either[String, T] =
    try {
      Option(faults.get(part)).foreach(fault => throw fault)
      Right(body)
    } catch {
      case refused: RefusedException => throw refused
      case problem if isOurs(problem) => Left(told(part, problem))
    }

  /** The same for what may be declined anyway. */
  def either[T](part: String)(body: => Either[String, T]): Either[String, T] = apply(part)(body).flatten

  /** A rule on logical plans: where it fails the plan stays as it is, with the reason at it. */
  def rule(part: String, plan: LogicalPlan)(body: => LogicalPlan): LogicalPlan =
    apply(part)(body) match {
      case Right(changed) => changed
      case Left(reason) =>
        plan.setTagValue(Declined, reason)
        plan
    }

  /** For tests: throw `fault` wherever `part` begins, until `mend`. */
  def inject(part: String, fault: Throwable): Unit = faults.put(part, fault)
  def mend(): Unit = faults.clear()

  /** `NonFatal` leaves out missing classes and deep recursion as well, after which a process goes on. */
  private def isOurs(problem: Throwable): Boolean = problem match {
    case NonFatal(_) | _: LinkageError | _: StackOverflowError => true
    case _ => false
  }

  /** Log a text, once. */
  def warn(text: String): Unit = if (isNew(text)) logWarning(text)

  private def isNew(text: String): Boolean = logged.put(text, true) == null

  private def told(part: String, problem: Throwable): String = {
    val what = problem.toString.linesIterator.nextOption().getOrElse("").take(Longest)
    if (isNew(s"$part $what")) {
      logWarning(s"planning pipelined joins failed ($part), so Spark plans without them: please report this", problem)
    }
    s"planning it failed: $what"
  }
}
