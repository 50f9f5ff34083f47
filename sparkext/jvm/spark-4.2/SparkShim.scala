package org.apache.spark.sql.sparkext

import org.apache.spark.JobArtifactSet
import org.apache.spark.api.python.{BasePythonRunner, ChainedPythonFunctions, PythonEvalType}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.ArrowPythonRunner
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.ColumnarBatch

/** Everything that differs between Spark's minor versions. This one is for 4.2. */
object SparkShim extends CommonShim {

  def pythonRunner(
      function: ChainedPythonFunctions,
      input: StructType,
      timeZone: String,
      runnerConf: Map[String, String],
      metrics: Map[String, SQLMetric],
      artifacts: Option[String]): BasePythonRunner[Iterator[InternalRow], ColumnarBatch] =
    new ArrowPythonRunner(
      Seq(function -> 0L),
      PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
      Array(Array(0)),
      input,
      timeZone,
      false,
      runnerConf,
      metrics,
      artifacts,
      None)

  def pythonRunnerConf(conf: SQLConf): Map[String, String] = ArrowPythonRunner.getPythonRunnerConfMap(conf)

  def artifacts: Option[String] = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid)
}
