package org.apache.spark.sql.sparkext.exec

import org.apache.spark.SparkContext
import org.apache.spark.sql.connector.metric.CustomMetric
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.sparkext.shim.SparkShim

/** The metrics of the operator in Spark's UI. */
object PipelineMetrics {
  private val RowsReceived = "pythonNumRowsReceived"

  /** The same metrics with the names that Spark's Python runner uses. The rows that it receives are the operator's
    * output.
    */
  def forRunner(metrics: Map[String, SQLMetric]): Map[String, SQLMetric] =
    metrics + (RowsReceived -> metrics("numOutputRows"))

  def create(context: SparkContext): Map[String, SQLMetric] = SparkShim.pythonMetrics(context) - RowsReceived ++ Seq(
    "fellBack" -> SQLMetrics.createMetric(context, "fell back to Spark's own joins"),
    "buildRows" -> SQLMetrics.createMetric(context, "build rows"),
    "buildBytes" -> SQLMetrics.createSizeMetric(context, "build bytes"),
    "sentRows" -> SQLMetrics.createMetric(context, "rows sent to partitions"),
    "sentBytes" -> SQLMetrics.createSizeMetric(context, "bytes sent to partitions"),
    "partitions" -> SQLMetrics.createMetric(context, "partitions"),
    "movedBuckets" -> SQLMetrics.createMetric(context, "buckets moved"),
    "splitBuckets" -> SQLMetrics.createMetric(context, "buckets split"),
    "indexTime" -> SQLMetrics.createNanoTimingMetric(context, "time to build indexes"),
    "indexBytes" -> SQLMetrics.createSizeMetric(context, "index bytes"),
    "reusedIndexes" -> SQLMetrics.createMetric(context, "indexes found in the cache"),
    "fileBytes" -> SQLMetrics.createSizeMetric(context, "bytes read from files"),
    "rowGroups" -> SQLMetrics.createMetric(context, "row groups read"),
    "prunedRowGroups" -> SQLMetrics.createMetric(context, "row groups ruled out by statistics"),
    "probeRows" -> SQLMetrics.createMetric(context, "probe rows"),
    "numOutputRows" -> SQLMetrics.createMetric(context, "number of output rows"),
    "morsels" -> SQLMetrics.createMetric(context, "morsels"),
    "kernelTime" -> SQLMetrics.createNanoTimingMetric(context, "time in kernels"),
    "transferTime" -> SQLMetrics.createNanoTimingMetric(context, "time waiting for input and output"),
    "smallestBudget" -> SQLMetrics.createV2CustomMetric(context, new SmallestBudget),
    "medianBudget" -> SQLMetrics.createV2CustomMetric(context, new MedianBudget),
    "largestBudget" -> SQLMetrics.createV2CustomMetric(context, new LargestBudget),
    "lowestHeadroom" -> SQLMetrics.createV2CustomMetric(context, new LowestHeadroom)
  )
}

/** A metric that summarises the values of all tasks. A task without a value reports 0, which is not a valid value:
  * budgets are at least one row.
  */
abstract class OverTasks(what: String, of: Seq[Long] => Long, show: Long => String) extends CustomMetric {
  override def name(): String = what
  override def description(): String = what
  override def aggregateTaskMetrics(values: Array[Long]): String = {
    val known = values.filter(_ > 0).sorted.toSeq
    if (known.isEmpty) "unknown" else show(of(known))
  }
}

// Spark creates instances of these classes by name when it shows them.
class SmallestBudget extends OverTasks("smallest output budget (rows)", _.head, value => f"$value%,d")
class MedianBudget extends OverTasks("median output budget (rows)", v => v(v.length / 2), value => f"$value%,d")
class LargestBudget extends OverTasks("largest output budget (rows)", _.last, value => f"$value%,d")
class LowestHeadroom extends OverTasks("lowest memory headroom", _.head, org.apache.spark.util.Utils.bytesToString(_))
