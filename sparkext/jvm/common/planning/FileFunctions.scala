package org.apache.spark.sql.sparkext

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{Expression, InputFileBlockLength, InputFileBlockStart, InputFileName}
import org.apache.spark.sql.catalyst.plans.logical.{AsOfJoin, Join, LogicalPlan}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.catalyst.trees.TreePattern.JOIN

/** `input_file_name()` and its like: they tell of the file that the thread of their task reads just then.
  *
  * Above a pipeline that is none: workers read the files, or rows of Spark's reader ahead of those that come back.
  */
object FileFunctions {
  val Reason = "a function of the current file, such as input_file_name(), is used above it"
  private val Below: TreeNodeTag[Unit] = TreeNodeTag[Unit]("sparkext.belowFileFunction")

  /** Notes at the joins of a plan that one stands above. A join is planned without sight of what is above it. */
  def mark(plan: LogicalPlan): Unit =
    if (plan.containsPattern(JOIN)) joinsBelow(plan).foreach(_.setTagValue(Below, ()))

  /** Notes it at all joins, where it is not known what stands above them. */
  def markAll(plan: LogicalPlan): Unit = {
    val rest = mutable.Stack(plan)
    while (rest.nonEmpty) {
      val node = rest.pop()
      if (node.isInstanceOf[Join]) node.setTagValue(Below, ())
      rest.pushAll(node.children)
    }
  }

  def isBelow(join: Join): Boolean = join.getTagValue(Below).isDefined

  /** The joins of a plan that one stands above, wherever: what is shuffled between them costs a join, and no wrong row. */
  def joinsBelow(plan: LogicalPlan): Seq[LogicalPlan] = {
    val above = plan.collect { case node if node.expressions.exists(_.exists(isOne)) => node }
    above.flatMap(_.children).flatMap(_.collect { case join @ (_: Join | _: AsOfJoin) => join })
  }

  private def isOne(expression: Expression): Boolean = expression match {
    case _: InputFileName | _: InputFileBlockStart | _: InputFileBlockLength => true
    case _ => false
  }
}
