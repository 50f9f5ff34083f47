package org.apache.spark.sql.sparkext

import org.json4s.JsonAST.JObject
import org.json4s.JsonDSL._

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.datasources.{FilePartition, PartitionedFile}
import org.apache.spark.sql.execution.datasources.parquet.ParquetOptions
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._

/** What the Parquet files of a table say in their footers: whether workers read them as Spark would, and what there is in them. */
object ParquetFiles {
  private val Counted = 256

  /** Whether every file has these columns in the types that the query takes them to have, or not at all. */
  def check(table: FileTable, columns: Seq[(Attribute, StoredColumn)], partitions: Seq[FilePartition]): Either[String, Unit] = {
    val files = partitions.flatMap(_.files).distinctBy(_.filePath).map(identified)
    val rules = new ParquetRules(table, columns, SQLConf.get)
    for {
      _ <- columns.flatMap { case (column, _) => rules.column(column) }.headOption.toLeft(())
      footers <- ParquetFooters.of(files, table)
      _ <- files.zip(footers).flatMap { case (file, footer) => rules.file(footer.meta).map(problem => s"${file.path}: $problem") }
        .headOption.toLeft(())
    } yield ()
  }

  /** How many rows the table's files hold: counted in the footers of some, and reckoned by size for the others; None where
    * no files are known.
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

  /** How many rows these files hold, and bytes the values of columns of texts in them; None where files do not say. */
  def held(table: FileTable, columns: Seq[StoredColumn], partitions: Seq[FilePartition]): Option[(Long, Long)] = {
    val files = partitions.flatMap(_.files).filter(_.start == 0L).map(identified)
    ParquetFooters.of(files, table).toOption.map { footers =>
      footers.map(_.rows).sum -> (for (footer <- footers; column <- columns) yield footer.bytesOf(column)).sum
    }
  }

  /** Whether the rows of each file come in the order of a column, as far as the bounds of its row groups tell. */
  def isOrdered(table: FileTable, column: Attribute): Boolean =
    known(table, column).exists { case (stored, footers) => footers.forall(_.isOrdered(stored)) }

  /** How many integers there are between the smallest and the largest of a column, if files tell. */
  def range(table: FileTable, column: Attribute): Option[Double] =
    known(table, column).map { case (stored, footers) => footers.flatMap(_.range(stored)) }.filter(_.nonEmpty).map { ranges =>
      ranges.map(_._2).max.toDouble - ranges.map(_._1).min.toDouble + 1.0
    }

  /** Begin to read the footers that a planning is about to ask for, those of all tables side by side. */
  def lookAhead(plan: LogicalPlan): Unit = plan.foreach {
    case FileTable(table) if table.refused.isEmpty => ParquetFooters.begun(first(table), table)
    case _ =>
  }

  /** The footers of the table's files, or of the first ones, and what these call a column; None where there are none. */
  private def known(table: FileTable, column: Attribute): Option[(StoredColumn, Seq[ParquetFooters.Footer])] =
    if (table.refused.isDefined) None
    else for {
      stored <- table.stored(column).toOption
      footers <- ParquetFooters.of(first(table), table).toOption if footers.nonEmpty
    } yield stored -> footers

  private def first(table: FileTable): Seq[FileIdentity] = table.listed.take(Counted).map(_.identity)

  private def identified(file: PartitionedFile): FileIdentity =
    FileStores.identity(file.toPath, file.modificationTime, file.fileSize)

  /** Python's `Calendars`: the files may be others by the time that workers read them. */
  def calendars(table: FileTable): JObject = {
    val options = new ParquetOptions(table.options, SQLConf.get)
    ("datetime" -> ParquetRules.isCorrected(options.datetimeRebaseModeInRead)) ~
      ("int96" -> ParquetRules.isCorrected(options.int96RebaseModeInRead))
  }

  /** Whether values of the type travel as text. */
  def isText(dataType: DataType): Boolean = ParquetRules.isFlat(dataType) && (dataType match {
    case FloatType | DoubleType | BinaryType => false
    case _ => true
  })
}
