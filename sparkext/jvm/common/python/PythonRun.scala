package org.apache.spark.sql.sparkext.python

import org.apache.spark.TaskContext
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonBroadcast}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.sparkext.arrow.{ColumnarArrowInput, ColumnsToArrow, RowArrowInput}
import org.apache.spark.sql.sparkext.exec.PipelinedJoinExec
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.sql.sparkext.shim.{PythonRunner, SparkShim}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.ColumnarBatch

/** A Python function with everything that tasks need to run it. It receives the columns `input` and emits the columns
  * `output`.
  *
  * `formulas`: the expressions that may fail, see [[PythonBatches]].
  */
case class PythonRun(
    function: ChainedPythonFunctions,
    input: StructType,
    output: StructType,
    timeZone: String,
    conf: Map[String, String],
    metrics: Map[String, SQLMetric],
    artifacts: Option[String],
    formulas: Formulas) {

  /** In a task: the output of the function for these rows, which are sent in batches of at most `most` rows. */
  def onRows(rows: Iterator[InternalRow], most: Int, partition: Int): Iterator[ColumnarBatch] = {
    val runner = new PythonRunner(this) with RowArrowInput {
      override protected def mostRows: Int = most
    }
    val wrapped = rows.map(InternalRow(_))
    new PythonBatches(runner.compute(Iterator.single(wrapped), partition, TaskContext.get()), output, formulas)
  }

  /** In a task: the output of the function for columns. */
  def onColumns(converted: ColumnsToArrow, partition: Int): Iterator[ColumnarBatch] = {
    val runner = new PythonRunner(this) with ColumnarArrowInput {
      override protected def columns: ColumnsToArrow = converted
    }
    new PythonBatches(runner.compute(Iterator.empty, partition, TaskContext.get()), output, formulas)
  }
}

object PythonRun {

  /** A function for the workers of an operator, with the files of `broadcasts`. */
  def of(
      operator: PipelinedJoinExec,
      command: Array[Byte],
      broadcasts: Seq[Broadcast[PythonBroadcast]],
      input: StructType,
      output: StructType,
      metrics: Map[String, SQLMetric]): PythonRun = WorkerPython.found match {
    case Right(python) => PythonRun(
        ChainedPythonFunctions(
          Seq(SparkShim.pythonFunction(command, python, broadcasts, operator.session.sparkContext))),
        input,
        output,
        operator.conf.sessionLocalTimeZone,
        SparkShim.pythonRunnerConf(operator.conf),
        metrics,
        SparkShim.artifacts,
        operator.formulas
      )
    case Left(problem) => throw new IllegalStateException(Reason("NO_PYTHON_AT_RUN_TIME", problem))
  }
}
