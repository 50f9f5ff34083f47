package org.apache.spark.sql.sparkext

import org.apache.spark.{JobArtifactSet, PartitionEvaluatorFactory}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, MapInBatchEvaluatorFactory}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType

/** Everything that differs between Spark's minor versions. This one is for 4.2. */
object SparkShim extends CommonShim {

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
