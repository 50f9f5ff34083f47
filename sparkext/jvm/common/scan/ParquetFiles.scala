package org.apache.spark.sql.sparkext

import scala.util.Try

import org.apache.hadoop.conf.Configuration
import org.json4s.JsonAST.JObject
import org.json4s.JsonDSL._

import org.apache.spark.sql.catalyst.FileSourceOptions
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.execution.datasources.{FileIndex, FilePartition, FileStatusWithMetadata, HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.{PartitionedFile, PartitioningAwareFileIndex}
import org.apache.spark.sql.execution.datasources.parquet.{ParquetFileFormat, ParquetOptions}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._

/** Which Parquet files workers read as Spark would: what its reader does beyond the plain meaning of a file is left to it. */
object ParquetFiles {
  private val Counted = 256

  /** Whether the relation is one of plain Parquet files, read with no option that changes what they hold. */
  def relation(relation: HadoopFsRelation): Either[String, Unit] = {
    val conf = SQLConf.get
    val options = new FileSourceOptions(CaseInsensitiveMap(relation.options))
    // Subclasses (of table formats) give a file another meaning.
    if (relation.fileFormat.getClass != classOf[ParquetFileFormat]) Left(s"not a Parquet scan: ${relation.fileFormat}")
    else if (options.ignoreCorruptFiles || options.ignoreMissingFiles) Left("corrupt or missing files must be ignored")
    else if (conf.parquetFieldIdReadEnabled) Left("columns are matched by field id")
    else if (conf.isParquetINT96TimestampConversion) Left("spark.sql.parquet.int96TimestampConversion is true")
    else if (relation.sparkSession.sessionState.conf.getConfString("parquet.crypto.factory.class", "").nonEmpty) {
      Left("files may be encrypted")
    } else relation.partitionSchema.find(field => !isText(field.dataType)).map { field =>
      s"partition column ${field.name} of type ${field.dataType.simpleString}"
    }.toLeft(())
  }

  /** Whether every file has these columns in the types that the query takes them to have, or not at all. */
  def check(relation: HadoopFsRelation, columns: Seq[Attribute], partitions: Seq[FilePartition]): Either[String, Unit] = {
    val files = partitions.flatMap(_.files).distinctBy(_.filePath)
      .map(identified(_))
    val rules = new ParquetRules(relation, columns, SQLConf.get)
    for {
      _ <- columns.flatMap(rules.column).headOption.toLeft(())
      footers <- ParquetFooters.of(files, relation)
      _ <- files.zip(footers).flatMap { case (file, footer) => rules.file(footer.meta).map(problem => s"${file.path}: $problem") }
        .headOption.toLeft(())
    } yield ()
  }

  /** How many rows the relation's files hold: counted in the footers of some, and reckoned by size for the others. */
  def rows(relation: HadoopFsRelation): Option[Double] =
    if (relation.fileFormat.getClass != classOf[ParquetFileFormat]) None
    else Try(relation.location.listFiles(Nil, Nil).flatMap(_.files)).toOption.flatMap { found =>
      val files = found.take(Counted).map(identified(_))
      val bytes = math.max(1L, files.map(_.size).sum).toDouble
      ParquetFooters.of(files, relation).toOption.map(_.map(_.rows).sum * math.max(1.0, found.map(_.getLen).sum / bytes))
    }

  /** How many rows these files hold, and bytes the values of each column of texts in them; None where files do not say. */
  def held(relation: HadoopFsRelation, columns: Seq[String], partitions: Seq[FilePartition]): Option[(Long, Map[String, Long])] = {
    val whole = partitions.flatMap(_.files).filter(_.start == 0L)
    val files = whole.map(identified(_))
    ParquetFooters.of(files, relation).toOption.map { footers =>
      footers.map(_.rows).sum -> columns.map(column => column -> footers.map(_.bytesOf(column)).sum).toMap
    }
  }

  /** Whether the rows of each file come in the order of a column, as far as the bounds of its row groups tell. */
  def isOrdered(relation: HadoopFsRelation, column: String): Boolean =
    footers(relation).exists(_.forall(_.ordered.contains(column)))

  /** How many integers there are between the smallest and the largest of a column, if files tell. */
  def range(relation: HadoopFsRelation, column: String): Option[Double] =
    footers(relation).map(_.flatMap(_.ranges.get(column))).filter(_.nonEmpty).map { ranges =>
      ranges.map(_._2).max.toDouble - ranges.map(_._1).min.toDouble + 1.0
    }

  /** Begin to read the footers that a planning is about to ask for, those of all relations side by side. */
  def lookAhead(plan: LogicalPlan): Unit = plan.foreach {
    case LogicalRelation(relation @ HadoopFsRelation(index: PartitioningAwareFileIndex, _, _, _, format, _), _, _, _, _)
        if format.getClass == classOf[ParquetFileFormat] =>
      ParquetFooters.begun(listed(index), relation)
    case _ =>
  }

  /** Those of the relation's files, or of the first ones; None where there are none. */
  private def footers(relation: HadoopFsRelation): Option[Seq[ParquetFooters.Footer]] =
    if (relation.fileFormat.getClass != classOf[ParquetFileFormat]) None
    else {
      val files = listed(relation.location)
      if (files.isEmpty) None else ParquetFooters.of(files, relation).toOption
    }

  private def identified(file: FileStatusWithMetadata): FileIdentity =
    FileStores.identity(file.getPath, file.getModificationTime, file.getLen)

  private def identified(file: PartitionedFile): FileIdentity =
    FileStores.identity(file.toPath, file.modificationTime, file.fileSize)

  private def listed(index: FileIndex): Seq[FileIdentity] =
    Try(index.listFiles(Nil, Nil).flatMap(_.files)).getOrElse(Nil).take(Counted)
      .map(identified(_))

  /** Python's `Calendars`: the files may be others by the time that workers read them. */
  def calendars(relation: HadoopFsRelation): JObject = {
    val options = new ParquetOptions(relation.options, SQLConf.get)
    ("datetime" -> ParquetRules.isCorrected(options.datetimeRebaseModeInRead)) ~
      ("int96" -> ParquetRules.isCorrected(options.int96RebaseModeInRead))
  }

  /** Whether values of the type travel as text. */
  private def isText(dataType: DataType): Boolean = ParquetRules.isFlat(dataType) && (dataType match {
    case FloatType | DoubleType | BinaryType => false
    case _ => true
  })

  /** Hadoop's settings with which Spark reads the relation's files. */
  def hadoopOf(relation: HadoopFsRelation): Configuration =
    relation.sparkSession.sessionState.newHadoopConfWithOptions(relation.options)
}
