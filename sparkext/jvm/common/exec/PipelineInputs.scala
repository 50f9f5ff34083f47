package org.apache.spark.sql.sparkext.exec

import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.sparkext.arrow.ColumnarInput
import org.apache.spark.sql.sparkext.build_sides.{OwnBuild, PipelinedBuild}
import org.apache.spark.sql.sparkext.joins.PlannedJoin
import org.apache.spark.sql.sparkext.planning.Guarded
import org.apache.spark.sql.sparkext.protocol.{Reason, Redaction, SentColumns, Settings}
import org.apache.spark.sql.sparkext.scan.FusedScan
import org.apache.spark.sql.sparkext.shuffle.{Exchange, Streamed}
import org.apache.spark.sql.types.{IntegerType, StringType, StructField, StructType}
import org.apache.spark.unsafe.types.UTF8String

/** How the rows of each side of a pipeline reach its workers: from files that workers read themselves, as columns, or
  * as rows.
  */
private[sparkext] class PipelineInputs(
    probe: SparkPlan,
    builds: Seq[SparkPlan],
    joins: Seq[PlannedJoin],
    parts: Option[Parts],
    exchange: Option[Exchange],
    settings: => Settings) {
  import PipelineInputs._

  /** How workers materialise the rows of the probe side before any task starts, or the reason why they do not. */
  lazy val probeMade: Either[String, OwnBuild] =
    if (exchange.isDefined) Left(Sent)
    else if (isWhole) Guarded.either("source")(PipelinedBuild.of(probe))
    else Left(Reason("NOT_WHOLE_GROUPS"))

  private def isWhole: Boolean = PipelinedBuild.wholeBelow(probe).isDefined

  /** The scan of the probe side, if workers perform it, or the reason why they do not. The first access lists files and
    * reads their footers.
    */
  lazy val probeScan: Either[String, FusedScan] =
    if (exchange.isDefined) Left(Sent)
    else if (parts.isDefined) Left(Shuffled)
    else if (isWhole) Left(probeMade.left.getOrElse("workers derive the rows"))
    else Guarded.either("scan")(FusedScan.of(probe, settings))

  /** The build sides that workers materialise, or the reasons why they do not. */
  lazy val ownBuilds: Seq[Either[String, OwnBuild]] =
    builds.zipWithIndex.map { case (build, number) =>
      if (isSent(number)) Left(Sent) else Guarded.either("build side")(OwnBuild.of(build, settings))
    }

  /** Whether the rows of a build side are received from other tasks. */
  def isSent(number: Int): Boolean = exchange.exists(_.builds.contains(number))

  /** The columns that Spark sends if workers do not scan the probe side, or the reason why it sends rows. */
  lazy val probeColumns: Either[String, ColumnarInput] =
    if (probeScan.isRight || probeMade.isRight) Left(Reason("WORKERS_READ_FILES"))
    else if (exchange.isDefined) Left(Sent)
    else if (parts.isDefined) Left(Shuffled)
    else Guarded.either("columns")(ColumnarInput.of(probe))
  lazy val buildColumns: Seq[Either[String, ColumnarInput]] = builds.zip(ownBuilds).map {
    case (_, Right(_)) => Left(Reason("WORKERS_READ_FILES"))
    case (build, _) => Guarded.either("columns")(ColumnarInput.of(build))
  }

  /** For each build side, whether workers materialise it and may find that it does not fit. */
  lazy val mayNotFit: Seq[Boolean] = builds.indices.map { number =>
    ownBuilds(number).exists(_.mayExceed(joins(number).maxBuildBytes))
  }

  /** The columns of the rows that Spark sends to workers for the probe side: the probe side's own (under a full outer
    * join after the partition number), or texts and blocks by which workers find its rows.
    */
  def sentProbe: StructType =
    if (exchange.exists(_.streamed.isDefined)) Streamed.Arriving
    else if (probeScan.isRight || probeMade.isRight || exchange.isDefined) Splits
    else SentColumns.of(parts.map(_ => IntegerType).toSeq ++ probe.output.map(_.dataType))

  /** The rows with the columns `sentProbe`, if the probe side is not sent as columns. */
  def probeRows: RDD[InternalRow] = (probeScan, probeMade) match {
    case (Right(scan), _) => // tasks are placed as Spark's own scan places them
      texts(scan.partitions.map(partition =>
        compact(render(scan.splits(partition))) -> partition.preferredLocations().toSeq))
    case (_, Right(_)) => texts(Seq("" -> Nil)) // one task reads all: rows derived again may be in another order
    case _ => parts.map(_.shuffled(probe)).getOrElse(probe.execute())
  }

  /** One partition per text, with its preferred locations. A partition without rows would not start a worker. */
  private def texts(located: Seq[(String, Seq[String])]): RDD[InternalRow] = {
    val context = probe.session.sparkContext
    if (located.isEmpty) context.emptyRDD
    else context.makeRDD(located).map(text => InternalRow(UTF8String.fromString(text)))
  }

  def describedProbe: String = described(probeMade.map(_.described).orElse(probeScan.map(_.described)), probeColumns)

  def describedBuild(number: Int): String = described(ownBuilds(number).map(_.described), buildColumns(number))

  private def described(own: Either[String, String], columns: Either[String, ColumnarInput]): String =
    if (own == Left(Sent)) Sent
    else Redaction.redacted(own.fold(
      reason => s"${if (columns.isRight) "columns" else "rows"} from Spark ($reason)",
      identity))
}

private[sparkext] object PipelineInputs {

  /** Why a side is neither read by the workers of this pipeline nor sent to them by Spark. */
  private val Sent = "sent to partitions"

  /** Why the probe side of a full outer join is neither read by workers nor sent as columns. */
  private val Shuffled = Reason("FULL_JOIN_SHUFFLED")

  /** The column that workers receive if Spark does not send them the rows: one text per partition. */
  private val Splits = StructType(Seq(StructField("splits", StringType)))
}
