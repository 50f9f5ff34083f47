package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.{ExistenceJoin, LeftAnti, LeftSemi}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.plans.logical.statsEstimation.EstimationUtils

/** How many rows and bytes a plan gives, roughly.
  *
  * Without table statistics Spark takes a filter to keep everything, and a join for as large as the product of its sides,
  * which says nothing about which side of the next join is the smaller one. Here filters keep the usual shares, and a join is
  * as large as its larger side, less what the filters on the other side take away: so it is with keys and foreign keys. What
  * Spark knows (row counts from statistics, or from a stage that has run) goes before.
  */
object Estimates {
  private val GroupsOf = 0.2
  private val LeastSelectivity = 0.001

  def rows(plan: LogicalPlan): Double = of(plan, share)

  def bytes(plan: LogicalPlan): Double = rows(plan) * width(plan)

  /** The share of a plan's rows that its filters keep, 1 if it has none. */
  def kept(plan: LogicalPlan): Double = rows(plan) / math.max(1.0, of(plan, _ => 1.0))

  private def of(plan: LogicalPlan, share: Expression => Double): Double = {
    def estimate(plan: LogicalPlan): Double = plan.stats.rowCount.map(_.toDouble).getOrElse(plan match {
      case Filter(condition, child) => estimate(child) * share(condition)
      case join: Join =>
        val (left, right) = (estimate(join.left), estimate(join.right))
        join.joinType match {
          case LeftSemi | LeftAnti | _: ExistenceJoin => left
          case _ if left < right => right * math.min(1.0, kept(join.left))
          case _ => left * math.min(1.0, kept(join.right))
        }
      case aggregate: Aggregate => if (aggregate.groupingExpressions.isEmpty) 1.0 else estimate(aggregate.child) * GroupsOf
      case union: Union => union.children.map(estimate).sum
      case unary: UnaryNode => estimate(unary.child)
      case leaf => leaf.stats.sizeInBytes.toDouble / width(leaf)
    })
    estimate(plan)
  }

  private def width(plan: LogicalPlan): Double = EstimationUtils.getSizePerRow(plan.output).toDouble

  /** The share of rows that a condition keeps, by its shape. Null checks are those that Spark adds to join keys. */
  private def share(condition: Expression): Double = math.max(
    LeastSelectivity,
    condition match {
      case And(left, right) => share(left) * share(right)
      case Or(left, right) => math.min(1.0, share(left) + share(right))
      case Not(child) => 1.0 - math.min(0.9, share(child))
      case IsNotNull(_) => 1.0
      case EqualTo(_, _: Literal) | EqualTo(_: Literal, _) => 0.1
      case In(_, list) => math.min(1.0, 0.1 * list.length)
      case InSet(_, set) => math.min(1.0, 0.1 * set.size)
      case _: StringPredicate | _: Like => 0.1
      case comparison: BinaryComparison if comparison.children.exists(_.isInstanceOf[Literal]) => 0.3
      case _ => 0.5
    })
}
