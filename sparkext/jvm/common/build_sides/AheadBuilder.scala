package org.apache.spark.sql.sparkext.build_sides

import org.apache.spark.SparkContext
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.sql.sparkext.python.{PythonRun, WorkerAnswers}
import org.apache.spark.sql.sparkext.scan.{FusedScan, ParquetFiles}
import org.apache.spark.sql.types._

/** Makes a worker build and index a build side before any task of the join needs it. A task that finds only then that
  * the build side does not fit has to fail.
  *
  * Used for build sides that may not fit: by the sizes stated in their files, or because a pipeline derives them. The
  * index stays cached on its node, so that tasks there need not build it again.
  */
class AheadBuilder(context: SparkContext, run: PythonRun, described: String)
    extends BuildSidePreparation(context, described) {
  override def prepare(): Option[PublishedBuildSide] = asJob {
    failIfCancelled()
    WorkerAnswers.of(context, run).collect().find(_.nonEmpty).foreach { problem =>
      throw new BuildSideTooLargeException(Reason("ROWS_NOT_USABLE", described, problem), 0)
    }
    None
  }
}

object AheadBuilder {

  /** The upper bound in bytes of a build side as Arrow columns, before any filter. None if a footer cannot be read. */
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

  /** Bytes per value, including one for validity. Strings and binary values count with their offsets only, without
    * their content.
    */
  private def width(dataType: DataType): Long = 1 + (dataType match {
    case _: DecimalType => 16
    case other if isText(other) => 8
    case other => other.defaultSize
  })
}
