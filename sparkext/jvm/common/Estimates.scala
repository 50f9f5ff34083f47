package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.{ExistenceJoin, LeftAnti, LeftSemi}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.plans.logical.statsEstimation.EstimationUtils

/** How many rows and bytes a plan gives, roughly.
  *
  * Without table statistics Spark takes a join for as large as the product of its sides, which says nothing about which side
  * of the next join is the smaller one. Here a join is as large as its larger side, which holds for keys and foreign keys,
  * and a filter keeps half. What Spark knows (row counts from statistics, or from a stage that has run) goes before.
  */
object Estimates {
  private val FilterKeeps = 0.5
  private val GroupsOf = 0.2

  def rows(plan: LogicalPlan): Double = known(plan).getOrElse(plan match {
    case Filter(condition, child) => rows(child) * (if (filters(condition)) FilterKeeps else 1.0)
    case join: Join => join.joinType match {
        case LeftSemi | LeftAnti | _: ExistenceJoin => rows(join.left)
        case _ => math.max(rows(join.left), rows(join.right))
      }
    case aggregate: Aggregate =>
      if (aggregate.groupingExpressions.isEmpty) 1.0 else rows(aggregate.child) * GroupsOf
    case union: Union => union.children.map(rows).sum
    case unary: UnaryNode => rows(unary.child)
    case leaf => leaf.stats.sizeInBytes.toDouble / width(leaf)
  })

  def bytes(plan: LogicalPlan): Double = rows(plan) * width(plan)

  private def known(plan: LogicalPlan): Option[Double] = plan.stats.rowCount.map(_.toDouble)

  private def width(plan: LogicalPlan): Double = EstimationUtils.getSizePerRow(plan.output).toDouble

  /** Whether a condition is more than the null checks that Spark adds to join keys. */
  private def filters(condition: Expression): Boolean = condition match {
    case And(left, right) => filters(left) || filters(right)
    case IsNotNull(_) => false
    case _ => true
  }
}
