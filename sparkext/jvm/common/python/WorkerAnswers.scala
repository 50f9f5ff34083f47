package org.apache.spark.sql.sparkext.python

import org.apache.spark.SparkContext
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.sparkext.exec.PipelinedJoinExec
import org.apache.spark.sql.sparkext.protocol.SentColumns
import org.apache.spark.sql.sparkext.shim.SparkShim
import org.apache.spark.sql.types.{StringType, StructType}
import org.apache.spark.unsafe.types.UTF8String

/** Runs a function once, in one task and its worker, and returns the texts that it emits. */
object WorkerAnswers {

  /** The columns of the single row that a worker receives, only to start the function, and the columns of its answer.
    */
  private val Asked = SentColumns.of(Seq(StringType))
  val Answer: StructType = SentColumns.of(Seq(StringType))

  def run(operator: PipelinedJoinExec, command: Array[Byte]): PythonRun =
    PythonRun.of(operator, command, Nil, Asked, Answer, SparkShim.pythonMetrics(operator.session.sparkContext))

  def of(context: SparkContext, run: PythonRun): RDD[String] =
    context.parallelize(Seq(0), 1).mapPartitionsWithIndexInternal { (partition, _) =>
      run.onRows(Iterator.single(InternalRow(UTF8String.EMPTY_UTF8)), most = 1, partition)
        .flatMap(batch => (0 until batch.numRows).map(batch.column(0).getUTF8String(_).toString))
    }
}
