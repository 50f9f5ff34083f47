package org.apache.spark.sql.sparkext

import org.apache.spark.SparkContext
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Has a worker make and index a build side before any task of the join needs it: once a task has found that it does not fit,
  * it is too late for anything but an error.
  *
  * Asked of build sides alone that may not fit, by what their files say. The index is not built twice: it stays on its node.
  */
class AheadBuilder(
    context: SparkContext,
    function: ChainedPythonFunctions,
    runnerConf: Map[String, String],
    timeZone: String,
    described: String,
    formulas: Formulas)
    extends BuildSidePreparation(context, described) {
  import AheadBuilder._

  override def prepare(): Option[PublishedBuildSide] = asJob {
    failIfCancelled()
    answers.collect().find(_.nonEmpty).foreach { problem =>
      throw new BuildSideTooLargeException(s"the $described cannot be used: $problem", 0)
    }
    None
  }

  /** What one task says, in one worker. */
  private def answers: RDD[String] = {
    val run = PythonRun(
      function,
      Asked,
      Answer,
      timeZone,
      runnerConf,
      SparkShim.pythonMetrics(context),
      SparkShim.artifacts,
      formulas)
    context.parallelize(Seq(0), 1).mapPartitionsWithIndexInternal { (partition, _) =>
      run.onRows(Iterator.single(InternalRow(UTF8String.EMPTY_UTF8)), most = 1, partition)
        .flatMap(batch => (0 until batch.numRows).map(batch.column(0).getUTF8String(_).toString))
    }
  }
}

object AheadBuilder {

  /** What a worker is given, to answer at all, and what it answers with. */
  private val Asked = SentColumns.of(Seq(StringType))
  val Answer: StructType = SentColumns.of(Seq(StringType))

  /** The most that a build side can take as Arrow columns, before any filter; None where files do not say. */
  def mostBytes(scan: FusedScan): Option[BigInt] = {
    val emitted = scan.columns.take(scan.outputs)
    val texts = emitted.filter(column => isText(column.dataType)).map(_.stored)
    ParquetFiles.held(scan.table, texts.flatMap(_.toOption), scan.partitions).map { case (rows, bytes) =>
      val values = texts.flatMap(_.left.toOption).map(longest(scan, _)).sum
      BigInt(rows) * (emitted.map(column => width(column.dataType)).sum + values) + bytes
    }
  }

  private def longest(scan: FusedScan, column: Int): Long =
    scan.partitions.flatMap(_.files).map(_.partitionValues).filterNot(_.isNullAt(column))
      .map(_.getUTF8String(column).numBytes.toLong).maxOption.getOrElse(0L)

  private def isText(dataType: DataType): Boolean = dataType match {
    case _: StringType | BinaryType => true
    case _ => false
  }

  /** Bytes a value, and one for whether it is there: of texts, of where they end. */
  private def width(dataType: DataType): Long = 1 + (dataType match {
    case _: DecimalType => 16
    case other if isText(other) => 8
    case other => other.defaultSize
  })
}
