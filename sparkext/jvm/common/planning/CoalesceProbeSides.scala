package org.apache.spark.sql.sparkext.planning

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.adaptive.{AQEShuffleReadExec, AQEShuffleReadRule, CoalesceShufflePartitions}
import org.apache.spark.sql.execution.exchange.ShuffleOrigin
import org.apache.spark.sql.sparkext.exec.PipelinedJoinExec

/** Lets adaptive execution merge small partitions of each side of a pipeline.
  *
  * Spark's own rule merges partitions only if all sides of an operator are shuffled, because their partitions may have
  * to match. The partitions of a pipeline's sides need not: each build side runs on its own. A task in Python takes
  * some 20 ms to start, so 200 partitions of a few rows each would take seconds. This is an `AQEShuffleReadRule`, so
  * Spark keeps its result only if the operators above allow it.
  */
class CoalesceProbeSides(session: SparkSession) extends PhysicalRule("partitions") with AQEShuffleReadRule {
  private lazy val coalesce = CoalesceShufflePartitions(session)

  override protected def supportedShuffleOrigins: Seq[ShuffleOrigin] = coalesce.supportedShuffleOrigins

  override protected def changed(plan: SparkPlan): SparkPlan = plan.transformDown { case join: PipelinedJoinExec =>
    join.withNewChildren(join.children.map { side =>
      if (side.exists(_.isInstanceOf[AQEShuffleReadExec])) side else coalesce(side)
    })
  }
}
