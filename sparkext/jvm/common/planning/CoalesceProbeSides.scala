package org.apache.spark.sql.sparkext

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.adaptive.{AQEShuffleReadExec, AQEShuffleReadRule, CoalesceShufflePartitions}
import org.apache.spark.sql.execution.exchange.ShuffleOrigin

/** Lets adaptive execution merge small partitions of each side of a pipeline.
  *
  * Spark's own rule wants all sides of an operator to be shuffled before it merges partitions of any, as they may have to fit
  * together. Those of a pipeline need not: each build side runs on its own. A task in Python takes some 20 ms to begin, so two
  * hundred partitions of a few rows each would take seconds. Being an `AQEShuffleReadRule`, what this does is kept by Spark
  * only where the operators above allow it.
  */
class CoalesceProbeSides(session: SparkSession) extends AQEShuffleReadRule {
  private lazy val coalesce = CoalesceShufflePartitions(session)

  override protected def supportedShuffleOrigins: Seq[ShuffleOrigin] = coalesce.supportedShuffleOrigins

  override def apply(plan: SparkPlan): SparkPlan = Guarded("partitions")(merged(plan)).getOrElse(plan)

  private def merged(plan: SparkPlan): SparkPlan = plan.transformDown { case join: PipelinedJoinExec =>
    join.withNewChildren(join.children.map { side =>
      if (side.exists(_.isInstanceOf[AQEShuffleReadExec])) side else coalesce(side)
    })
  }
}
