package org.apache.spark.sql.sparkext.planning

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.TreeNodeTag

/** Values that are computed once for each node of a logical plan, and kept for one planning. */
private[sparkext] class PlanMemo[T](name: String) {
  private val found: TreeNodeTag[T] = TreeNodeTag[T](name)

  /** Called when a planning starts: discards the values of earlier plannings, which nodes still have as tags, their own
    * or copied from other nodes.
    */
  def begin(plan: LogicalPlan): Unit = plan.foreach(_.unsetTagValue(found))

  def of(plan: LogicalPlan)(reckoned: => T): T = plan.getTagValue(found).getOrElse {
    val value = reckoned
    plan.setTagValue(found, value)
    value
  }
}
