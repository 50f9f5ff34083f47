package org.apache.spark.sql.sparkext.scan

import java.nio.{ByteBuffer, ByteOrder}
import java.util.Base64

import org.apache.hadoop.fs.Path
import org.json4s.JsonAST._
import org.json4s.JsonDSL._

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan, Project}
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.datasources.{FilePartition, PartitionedFile}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sparkext.expressions.{
  Expressions,
  Failing,
  Widened,
  Wording,
  WorkerEvaluator,
  WorkerExpression
}
import org.apache.spark.sql.sparkext.joins.ColumnRef
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons, Redaction, SentColumns, Settings}
import org.apache.spark.sql.types.{DataType, StructType}

/** A Parquet scan that workers perform themselves: the columns, the files, and the rows that they read.
  *
  * Splits, their order and their locations are Spark's own. The scan emits the first `outputs` of `columns`; the others
  * are read for the filter. `deleted`: the positions of the deleted rows of each file, in ascending order.
  */
case class FusedScan(
    columns: Seq[ScanColumn],
    outputs: Int,
    filter: Option[Expression],
    table: FileTable,
    partitions: Seq[FilePartition],
    deleted: Map[Path, Array[Long]],
    buckets: Seq[JObject],
    caseSensitive: Boolean) {

  /** Omits the credentials of buckets. */
  override def toString: String = Redaction.redacted(described)

  /** Python's `ScanSpec`. */
  def spec: JValue =
    ("columns" -> columns.map { column =>
      ("name" -> column.attribute.name) ~ ("stored" -> column.stored.toOption.map(
        _.json)) ~ ("partition" -> column.stored.left.toOption)
    }) ~
      ("outputs" -> outputs) ~
      ("filter" -> filter.flatMap(WorkerEvaluator.Arrow.of(_, place).toOption)) ~
      ("case_sensitive" -> caseSensitive)

  /** The columns that the scan reads, with the types that the query gives them. */
  def schema: StructType = SentColumns.of(columns.map(_.dataType))

  /** Python's `Split`s of one partition. */
  def splits(partition: FilePartition): JValue = JArray(partition.files.map(split).toList)

  /** All files, each as one split: a build side is read as a whole, and is the same however Spark divides its files. */
  def files: Seq[JValue] =
    // A file that was requested twice is read twice.
    partitions.flatMap(_.files).filter(_.start == 0L).sortBy(_.filePath.toString).map { file =>
      split(file.copy(length = Long.MaxValue))
    }

  private def split(file: PartitionedFile): JValue =
    ("path" -> FileStores.location(file.toPath)) ~
      ("start" -> file.start) ~
      ("length" -> file.length) ~
      ("deleted" -> deletions.get(file.toPath)) ~
      ("values" -> table.partitionSchema.zipWithIndex.map { case (field, number) =>
        WorkerExpression.text(Literal(file.partitionValues.get(number, field.dataType), field.dataType))
          .getOrElse(throw new IllegalStateException(s"partition column ${field.name}: no value of ${field.dataType}"))
      })

  /** The distance of each deleted row of a file from the one before it, encoded for workers. */
  private lazy val deletions: Map[Path, String] = deleted.map { case (path, rows) =>
    val distances = ByteBuffer.allocate(rows.length * java.lang.Long.BYTES).order(ByteOrder.LITTLE_ENDIAN)
    rows.foldLeft(0L) { (before, row) => distances.putLong(row - before); row }
    path -> Base64.getEncoder.encodeToString(distances.array)
  }

  /** How workers read dates and timestamps of the files: Python's `Calendars`. */
  def calendars: JObject = ParquetFiles.calendars(table)

  def described: String =
    s"fused ${columns.take(outputs).map(_.attribute.name).mkString("[", ", ", "]")}" +
      filter.map(condition => s" filter ${Wording.of(condition)}").getOrElse("") +
      table.state.map(state => s" of $state").getOrElse("") +
      (if (deleted.isEmpty) "" else s" without ${deleted.values.map(_.length.toLong).sum} deleted rows")

  private def place(attribute: Attribute): ColumnRef =
    ColumnRef(
      0,
      columns.indexWhere(column =>
        column.attribute.exprId == attribute.exprId && column.dataType == attribute.dataType))
}

/** A column, emitted as `dataType`: a partition value, by its index, or a column of the files. */
case class ScanColumn(attribute: Attribute, dataType: DataType, stored: Either[Int, StoredColumn])

object FusedScan {

  /** The largest number of deleted rows. Each takes eleven bytes in the message that starts a task, and Spark sends no
    * message of more than 128 MiB.
    */
  private val MostDeleted = 1000000L

  /** The scan in `plan`, below operators that only drop, rename or filter; or the reason why workers cannot perform it.
    */
  def of(plan: SparkPlan, settings: Settings): Either[String, FusedScan] =
    if (!settings.fusesScans) Left(Reason("FUSED_SCAN_DISABLED"))
    else
      for {
        peeled <- PeeledPlan.of(plan)
        scan <- FileScan.of(peeled.source)
        _ <- peeled.outputs.find(Failing.may).map(computed).toLeft(())
        _ <- scan.table.refused.orElse(scan.refused).toLeft(())
        (marks, filters) = peeled.filters.flatten.partition(keepsUndeleted(_, scan.table))
        _ <- Reasons.check(marks.nonEmpty || !scan.marksDeleted, Reason("DELETED_ROWS_READ"))
        columns <- columnsOf(scan, peeled.outputs, filters)
        filter = filters.reduceOption(And)
        _ <- filter.flatMap(WorkerEvaluator.Arrow.untested).map(part =>
          Reason("FILTER_OF_SPARK", part)).toLeft(())
        partitions <- scan.partitions
        deleted <- scan.deleted(partitions)
        _ <- Reasons.check(
          deleted.values.map(_.length.toLong).sum <= MostDeleted,
          Reason("TOO_MANY_DELETED_ROWS", MostDeleted))
        buckets <- FileStores.buckets(partitions.flatMap(_.files).map(_.toPath), scan.table.hadoop)
        stored = columns.flatMap(column => column.stored.toOption.map(column.attribute -> _))
        _ <- ParquetFiles.check(scan.table, stored, partitions)
      } yield FusedScan(
        columns,
        peeled.outputs.length,
        filter,
        scan.table,
        partitions,
        deleted,
        buckets,
        SQLConf.get.caseSensitiveAnalysis)

  /** The columns that workers will read so that `plan` emits `columns`; None if Spark will read them. This is a
    * forecast, before there is a physical plan.
    */
  def expected(plan: LogicalPlan, columns: Seq[Expression], settings: Settings): Option[AttributeSet] =
    if (!settings.fusesScans || columns.exists(Widened.unapply(_).isEmpty)) None
    else plan match {
      case Project(projected, child) => expected(child, projected.map(Expressions.unnamed), settings)
      case Filter(condition, child) if WorkerEvaluator.Arrow.tests(condition) =>
        expected(child, columns, settings).map(_ ++ condition.references)
      case FileTable(table) =>
        val read = AttributeSet(columns).filterNot(table.marksDeleted)
        val known = read.forall(column => ParquetRules.isFlat(column.dataType) && table.place(column).isRight)
        if (table.refused.isEmpty && known) Some(AttributeSet(read.toSeq)) else None
      case _ => None
    }

  /** Whether the rows that workers will read are ordered by a column, as far as the files show. */
  def isOrdered(plan: LogicalPlan, column: Attribute): Boolean = plan match {
    case Project(projected, child) =>
      projected.find(_.exprId == column.exprId).map(Expressions.unnamed).exists {
        case Widened(source) => isOrdered(child, source)
        case _ => false
      }
    case Filter(_, child) => isOrdered(child, column)
    case FileTable(table) => ParquetFiles.isOrdered(table, column)
    case _ => false
  }

  private def computed(column: Expression): String = Reason("COLUMN_OF_SPARK", Wording.of(column))

  /** Whether a condition keeps the rows that are not deleted. Workers skip deleted rows without it. */
  private def keepsUndeleted(condition: Expression, table: FileTable): Boolean = condition match {
    case EqualTo(mark: Attribute, Literal(value: Byte, _)) => value == 0 && table.marksDeleted(mark)
    case IsNotNull(mark: Attribute) => table.marksDeleted(mark)
    case _ => false
  }

  private def columnsOf(
      scan: FileScan,
      outputs: Seq[Expression],
      filters: Seq[Expression]): Either[String, Seq[ScanColumn]] = {
    val direct = AttributeSet(outputs.collect { case attribute: Attribute => attribute })
    Reasons.all((outputs ++ AttributeSet(filters).filterNot(direct.contains)).map {
      case expression @ Widened(attribute) => scan.place(attribute).map(ScanColumn(attribute, expression.dataType, _))
      case other => Left(computed(other))
    })
  }
}
