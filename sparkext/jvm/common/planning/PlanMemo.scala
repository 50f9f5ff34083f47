package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.TreeNodeTag

/** What is found of the nodes of a logical plan, each once, for as long as one planning takes. */
private class PlanMemo[T](name: String) {
  private val found: TreeNodeTag[T] = TreeNodeTag[T](name)

  /** Lets a planning begin: what an earlier one has found, of nodes or of those that they are copies of, does not hold any more. */
  def begin(plan: LogicalPlan): Unit = plan.foreach(_.unsetTagValue(found))

  def of(plan: LogicalPlan)(reckoned: => T): T = plan.getTagValue(found).getOrElse {
    val value = reckoned
    plan.setTagValue(found, value)
    value
  }
}
