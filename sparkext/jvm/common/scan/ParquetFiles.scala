package org.apache.spark.sql.sparkext.scan

import org.json4s.JsonAST.JObject
import org.json4s.JsonDSL._

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.datasources.{FilePartition, PartitionedFile}
import org.apache.spark.sql.execution.datasources.parquet.ParquetOptions
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._

/** Information in the footers of a table's Parquet files: whether workers read them as Spark would, and statistics of
  * their content.
  */
object ParquetFiles {
  private val Counted = 256

  /** Whether every file has these columns in the types that the query assumes, or does not have them. */
  def check(
      table: FileTable,
      columns: Seq[(Attribute, StoredColumn)],
      partitions: Seq[FilePartition]): Either[String, Unit] = {
    val files = partitions.flatMap(_.files).distinctBy(_.filePath).map(identified)
    val rules = new ParquetRules(table, columns, SQLConf.get)
    for {
      _ <- columns.flatMap { case (column, _) => rules.column(column) }.headOption.toLeft(())
      footers <- ParquetFooters.of(files, table)
      _ <- files.zip(footers).flatMap { case (file, footer) =>
        rules.file(footer.meta).map(problem => s"${file.path}: $problem")
      }
        .headOption.toLeft(())
    } yield ()
  }

  /** The number of rows in the table's files: read from the footers of some, and extrapolated by size for the others.
    * None if the table is left to Spark, no files are known, or a footer cannot be read.
    */
  def rows(table: FileTable): Option[Double] =
    if (table.refused.isDefined) None
    else Some(table.listed).filter(_.nonEmpty).flatMap { listed =>
      val files = listed.take(Counted)
      val bytes = math.max(1L, files.map(_.size).sum).toDouble
      ParquetFooters.of(files.map(_.identity), table).toOption.map { footers =>
        footers.map(_.rows).sum * math.max(1.0, listed.map(_.size).sum / bytes)
      }
    }

  /** The number of rows in these files, and the bytes of the values in these text columns, or an upper estimate if a
    * writer has not recorded the bytes. None if a footer cannot be read.
    */
  def held(table: FileTable, columns: Seq[StoredColumn], partitions: Seq[FilePartition]): Option[(Long, Long)] = {
    val files = partitions.flatMap(_.files).filter(_.start == 0L).map(identified)
    ParquetFooters.of(files, table).toOption.map { footers =>
      footers.map(_.rows).sum -> (for (footer <- footers; column <- columns) yield footer.bytesOf(column)).sum
    }
  }

  /** Whether the rows of each file are ordered by a column, as far as the bounds of its row groups show. */
  def isOrdered(table: FileTable, column: Attribute): Boolean =
    known(table, column).exists { case (stored, footers) => footers.forall(_.isOrdered(stored)) }

  /** The number of integers from the smallest to the largest value of a column, if the files state them. */
  def range(table: FileTable, column: Attribute): Option[Double] =
    known(table, column).map { case (stored, footers) => footers.flatMap(_.range(stored)) }.filter(_.nonEmpty).map {
      ranges =>
        ranges.map(_._2).max.toDouble - ranges.map(_._1).min.toDouble + 1.0
    }

  /** Begin to read the footers that planning is about to request, those of all tables concurrently. */
  def lookAhead(plan: LogicalPlan): Unit = plan.foreach {
    case FileTable(table) if table.refused.isEmpty => ParquetFooters.begun(first(table), table)
    case _ =>
  }

  /** The name or id of a column, and the footers of the table's files, or of the first ones if there are many. None if
    * either is unknown.
    */
  private def known(table: FileTable, column: Attribute): Option[(StoredColumn, Seq[ParquetFooters.Footer])] =
    if (table.refused.isDefined) None
    else for {
      stored <- table.stored(column).toOption
      footers <- ParquetFooters.of(first(table), table).toOption if footers.nonEmpty
    } yield stored -> footers

  private def first(table: FileTable): Seq[FileIdentity] = table.listed.take(Counted).map(_.identity)

  private def identified(file: PartitionedFile): FileIdentity =
    FileStores.identity(file.toPath, file.modificationTime, file.fileSize)

  /** Python's `Calendars`. Workers receive them because the files may have been replaced before they read them. */
  def calendars(table: FileTable): JObject = {
    val options = new ParquetOptions(table.options, SQLConf.get)
    ("datetime" -> ParquetRules.isCorrected(options.datetimeRebaseModeInRead)) ~
      ("int96" -> ParquetRules.isCorrected(options.int96RebaseModeInRead))
  }

  /** Whether values of the type can be sent as text. */
  def isText(dataType: DataType): Boolean = ParquetRules.isFlat(dataType) && (dataType match {
    case FloatType | DoubleType | BinaryType => false
    case _ => true
  })
}
