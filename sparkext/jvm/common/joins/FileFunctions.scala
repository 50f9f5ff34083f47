package org.apache.spark.sql.sparkext.joins

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{Expression, InputFileBlockLength, InputFileBlockStart, InputFileName}
import org.apache.spark.sql.catalyst.plans.logical.{AsOfJoin, Join, LogicalPlan}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.catalyst.trees.TreePattern.JOIN
import org.apache.spark.sql.sparkext.protocol.Reason

/** `input_file_name()` and similar functions, which return the file that the thread of their task is reading.
  *
  * Above a pipeline they have no file to return: workers read the files, or receive rows from Spark's reader, which is
  * by then ahead of the rows that workers return.
  */
object FileFunctions {
  val AboveJoin: String = Reason("FILE_FUNCTION")
  private val Below: TreeNodeTag[Unit] = TreeNodeTag[Unit]("sparkext.belowFileFunction")

  /** Marks the joins of a plan that are below such a function. A join is planned without access to the operators above
    * it.
    */
  def mark(plan: LogicalPlan): Unit =
    if (plan.containsPattern(JOIN)) joinsBelow(plan).foreach(_.setTagValue(Below, ()))

  /** Marks all joins, if the operators above them are unknown. */
  def markAll(plan: LogicalPlan): Unit = {
    val rest = mutable.Stack(plan)
    while (rest.nonEmpty) {
      val node = rest.pop()
      if (node.isInstanceOf[Join]) node.setTagValue(Below, ())
      rest.pushAll(node.children)
    }
  }

  def isBelow(join: Join): Boolean = join.getTagValue(Below).isDefined

  /** The joins of a plan below such a function, at any depth. A join below a shuffle need not be included, but
    * including it costs only a pipeline, and causes no wrong row.
    */
  def joinsBelow(plan: LogicalPlan): Seq[LogicalPlan] = {
    val above = plan.collect { case node if node.expressions.exists(_.exists(isOne)) => node }
    above.flatMap(_.children).flatMap(_.collect { case join @ (_: Join | _: AsOfJoin) => join })
  }

  private def isOne(expression: Expression): Boolean = expression match {
    case _: InputFileName | _: InputFileBlockStart | _: InputFileBlockLength => true
    case _ => false
  }
}
