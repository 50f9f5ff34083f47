package org.apache.spark.sql.sparkext.exec

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.sparkext.build_sides.TooLarge
import org.apache.spark.sql.sparkext.protocol.PipelineRuns

/** The fallback of an operator to Spark's own joins, once it has happened. */
private class PipelineFallback(operator: PipelinedJoinExec) extends Logging {
  @volatile private var begun: Option[(String, RuntimeFallback)] = None

  /** Spark's own joins, to run in place of the pipeline. */
  def begin(tooLarge: TooLarge): RuntimeFallback = synchronized {
    if (begun.isEmpty) {
      logWarning(s"Spark's own joins run instead of a pipeline: ${tooLarge.reason}. ${PipelineFallback.WaysOut}")
      begun = Some(tooLarge.reason -> new RuntimeFallback(operator, tooLarge.sizes))
    }
    PipelineRuns.fellBack(operator, tooLarge.reason)
    operator.metrics("fellBack").set(1)
    operator.postToDriver(Seq("fellBack"))
    begun.get._2
  }

  def plan: Option[SparkPlan] = begun.map(_._2.plan)

  def fate: Option[String] = begun.map { case (reason, _) => s"fell back to Spark's own joins: $reason" }
}

private object PipelineFallback {

  /** The remedies that the log adds to the reason why a pipeline has not run. */
  private val WaysOut =
    "To run the pipeline, raise spark.sparkext.buildSide.maxBytes, filter the build side, or put the hint on the other side"
}
