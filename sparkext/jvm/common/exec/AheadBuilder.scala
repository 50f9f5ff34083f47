package org.apache.spark.sql.sparkext

import org.apache.spark.SparkContext
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.sql.types._

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
  override def prepare(): Option[PublishedBuildSide] = asJob {
    failIfCancelled()
    WorkerAnswers.of(context, function, runnerConf, timeZone, formulas).collect().find(_.nonEmpty).foreach { problem =>
      throw new BuildSideTooLargeException(s"the $described cannot be used: $problem", 0)
    }
    None
  }
}

object AheadBuilder {

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
