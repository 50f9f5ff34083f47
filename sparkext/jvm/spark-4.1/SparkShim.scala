package org.apache.spark.sql.sparkext

import org.apache.spark.{JobArtifactSet, Partitioner, SparkEnv}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType}
import org.apache.spark.scheduler.MapStatus
import org.apache.spark.shuffle.ShuffleManager
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{EvalMode, NumericEvalContext, TimestampAddInterval}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.storage.BlockManagerId
import org.apache.spark.unsafe.types.{GeographyVal, GeometryVal}

/** Everything that differs between Spark's minor versions. This one is for 4.1. */
object SparkShim extends CommonShim {
  def shuffleManager(env: SparkEnv): ShuffleManager = env.shuffleManager

  def mapStatus(at: BlockManagerId, lengths: Array[Long], mapId: Long, checksum: Long): MapStatus =
    MapStatus(at, lengths, mapId, checksum)

  def sending(rows: SentRows, to: Partitioner, files: MapFiles, conf: SQLConf): Sending =
    new Sending(
      rows,
      to,
      shuffleWriterProcessor = files,
      checksumMismatchFullRetryEnabled = conf.shuffleChecksumMismatchFullRetryEnabled)

  def pythonRunnerConf(conf: SQLConf): Map[String, String] = ArrowPythonRunner.getPythonRunnerConfMap(conf)

  def artifacts: Option[String] = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid)

  type TimePlusInterval = TimestampAddInterval

  type ArithmeticContext = NumericEvalContext

  def arithmetic(mode: EvalMode.Value): ArithmeticContext = NumericEvalContext(mode)

  def evalMode(argument: Any): Option[EvalMode.Value] = Some(argument).collect { case context: NumericEvalContext =>
    context.evalMode
  }
}

/** Spark's runner of a function over iterators of Arrow batches. */
class PythonRunner(
    function: ChainedPythonFunctions,
    input: StructType,
    timeZone: String,
    runnerConf: Map[String, String],
    metrics: Map[String, SQLMetric],
    artifacts: Option[String])
    extends ArrowPythonRunner(
      Seq(function -> 0L),
      PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
      Array(Array(0)),
      input,
      timeZone,
      false,
      runnerConf,
      metrics,
      artifacts,
      None,
      None)

/** The row getters that exist in this Spark version, but not in all supported ones. `row` is the number of the current
  * row.
  */
abstract class VersionedRow(columns: Array[ColumnVector]) extends InternalRow {
  protected var row = 0

  override def getGeography(column: Int): GeographyVal = columns(column).getGeography(row)
  override def getGeometry(column: Int): GeometryVal = columns(column).getGeometry(row)
}
