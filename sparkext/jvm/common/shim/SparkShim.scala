package org.apache.spark.sql.sparkext.shim

import java.util.{ArrayList, HashMap}
import java.util.concurrent.{CompletableFuture, ExecutorService}

import scala.jdk.CollectionConverters._

import org.apache.spark.{JobArtifactSet, SparkContext}
import org.apache.spark.api.python.{PythonBroadcast, SimplePythonFunction}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.{SparkSession, classic}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.optimizer.Optimizer
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.{SQLExecution, SparkPlan, SparkPlanner}
import org.apache.spark.sql.execution.arrow.ArrowConverters
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, PythonSQLMetrics}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sparkext.python.WorkerPython
import org.apache.spark.sql.types.StructType

/** The internals of Spark that are used. Members that differ between minor versions are in traits of the layers
  * `spark-X.Y+`. A file of a layer is compiled for X.Y and later, up to the next layer with a file of the same name.
  */
object SparkShim extends ArithmeticShim with MapStatusShim with SendingShim with StreamingShim {
  private val BatchRows = 65536L
  private val BatchBytes = 16L << 20

  /** The setting for uncompressed Arrow data, which workers can map and read without conversion. Tasks that write Arrow
    * data read this setting from the properties of their job.
    */
  val Uncompressed: (String, String) = "spark.sql.execution.arrow.compression.codec" -> "none"

  def emptyArrowStream(schema: StructType, timeZone: String): Array[Byte] = {
    val conf = SQLConf.get.clone()
    conf.setConfString(Uncompressed._1, Uncompressed._2)
    SQLConf.withExistingConf(conf)(ArrowConverters.createEmptyArrowBatch(schema, timeZone, false, false))
  }

  def toArrow(rows: Iterator[InternalRow], schema: StructType, timeZone: String): Iterator[Array[Byte]] =
    ArrowConverters.toBatchWithSchemaIterator(rows, schema, BatchRows, BatchBytes, timeZone, false, false)

  /** Run code in another thread as part of the same query: its jobs belong to the query's execution and job groups. */
  def inThread[T](session: SparkSession, threads: ExecutorService)(body: => T): CompletableFuture[T] =
    SQLExecution.withThreadLocalCaptured(session.asInstanceOf[classic.SparkSession], threads)(body)

  def planner(session: SparkSession): SparkPlanner =
    session.asInstanceOf[classic.SparkSession].sessionState.planner

  def optimizer(session: SparkSession): Optimizer =
    session.asInstanceOf[classic.SparkSession].sessionState.optimizer

  /** The physical plan of a logical one, planned like any query of the session. */
  def executed(session: SparkSession, plan: LogicalPlan): SparkPlan = {
    val classical = session.asInstanceOf[classic.SparkSession]
    classical.withActive(classical.sessionState.executePlan(plan).executedPlan)
  }

  def pythonRunnerConf(conf: SQLConf): Map[String, String] = ArrowPythonRunner.getPythonRunnerConfMap(conf)

  def artifacts: Option[String] = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid)

  def pythonMetrics(context: SparkContext): Map[String, SQLMetric] =
    PythonSQLMetrics.pythonSizeMetricsDesc.map { case (key, text) =>
      key -> SQLMetrics.createSizeMetric(context, text)
    } ++
      PythonSQLMetrics.pythonTimingMetricsDesc.map { case (key, text) =>
        key -> SQLMetrics.createTimingMetric(context, text)
      } ++
      PythonSQLMetrics.pythonOtherMetricsDesc.map { case (key, text) => key -> SQLMetrics.createMetric(context, text) }

  def pythonFunction(
      command: Array[Byte],
      python: WorkerPython,
      broadcasts: Seq[Broadcast[PythonBroadcast]],
      context: SparkContext): SimplePythonFunction = {
    val includes = new ArrayList[String]()
    context.listFiles().map(_.split('/').last).filter(_.matches(".*\\.(py|zip|egg|jar)")).foreach(includes.add)
    SimplePythonFunction(
      command.toIndexedSeq,
      new HashMap[String, String](),
      includes,
      python.executable,
      python.version,
      new ArrayList(broadcasts.asJava),
      null)
  }
}
