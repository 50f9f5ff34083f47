package io.sparkext

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.sparkext.{CoalesceProbeSides, OwnBuilds, PipelinedJoinStrategy, PlanAsOfJoins, ResolvePipelinedJoinHint, RowsInPlace, StreamedExchanges, TopRows, WorkerPython}

/** The entry point: `spark.sql.extensions=io.sparkext.SparkExtensions`. */
class SparkExtensions extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    WorkerPython.refuseAtRunTime()
    extensions.injectHintResolutionRule(_ => ResolvePipelinedJoinHint)
    extensions.injectPlanNormalizationRule(new PlanAsOfJoins(_))
    extensions.injectPlannerStrategy(new PipelinedJoinStrategy(_))
    extensions.injectColumnar(_ => RowsInPlace)
    extensions.injectColumnar(_ => StreamedExchanges)
    extensions.injectColumnar(_ => OwnBuilds)
    extensions.injectColumnar(_ => TopRows.WithColumns)
    extensions.injectQueryStagePrepRule(_ => TopRows)
    extensions.injectQueryStageOptimizerRule(new CoalesceProbeSides(_))
  }
}
