package org.apache.spark.sql.sparkext

import java.util.{ArrayList, HashMap}
import java.util.concurrent.{CompletableFuture, ExecutorService}

import scala.jdk.CollectionConverters._

import org.apache.spark.{JobArtifactSet, PartitionEvaluatorFactory, SparkContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonBroadcast, PythonEvalType, SimplePythonFunction}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.{SQLExecution, SparkPlanner}
import org.apache.spark.sql.execution.arrow.ArrowConverters
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, MapInBatchEvaluatorFactory, PythonSQLMetrics}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/** Everything that differs between Spark's minor versions. This one is for 4.3. */
object SparkShim {
  private val BatchRows = 65536L
  private val BatchBytes = 16L << 20

  def emptyArrowStream(schema: StructType, timeZone: String): Array[Byte] =
    ArrowConverters.createEmptyArrowBatch(schema, timeZone, false, false)

  def toArrow(rows: Iterator[InternalRow], schema: StructType, timeZone: String): Iterator[Array[Byte]] =
    ArrowConverters.toBatchWithSchemaIterator(rows, schema, BatchRows, BatchBytes, timeZone, false, false)

  /** Run in another thread what is to look like part of the same query: its jobs belong to the execution and its groups. */
  def inThread[T](session: SparkSession, threads: ExecutorService)(body: => T): CompletableFuture[T] =
    SQLExecution.withThreadLocalCaptured(session.asInstanceOf[org.apache.spark.sql.classic.SparkSession], threads)(body)

  def planner(session: SparkSession): SparkPlanner =
    session.asInstanceOf[org.apache.spark.sql.classic.SparkSession].sessionState.planner

  def pythonMetrics(context: SparkContext): Map[String, SQLMetric] =
    PythonSQLMetrics.pythonSizeMetricsDesc.map { case (key, text) => key -> SQLMetrics.createSizeMetric(context, text) } ++
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

  def evaluatorFactory(
      output: Seq[Attribute],
      function: ChainedPythonFunctions,
      input: StructType,
      result: StructType,
      conf: SQLConf,
      metrics: Map[String, SQLMetric]): PartitionEvaluatorFactory[InternalRow, InternalRow] =
    new MapInBatchEvaluatorFactory(
      output,
      Seq(function -> 0L),
      input,
      result,
      conf.arrowMaxRecordsPerBatch,
      PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
      conf.sessionLocalTimeZone,
      false,
      ArrowPythonRunner.getPythonRunnerConfMap(conf),
      metrics,
      JobArtifactSet.getCurrentJobArtifactState.map(_.uuid),
      None)
}
