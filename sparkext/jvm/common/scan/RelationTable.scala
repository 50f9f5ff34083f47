package org.apache.spark.sql.sparkext.scan

import scala.util.Try

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.catalyst.FileSourceOptions
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.execution.datasources.HadoopFsRelation
import org.apache.spark.sql.execution.datasources.parquet.{ParquetFileFormat, ParquetUtils}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.sql.types._

/** A relation of Parquet files. This class reads those in plain directories. */
class RelationTable(relation: HadoopFsRelation) extends FileTable {
  import RelationTable._

  override def hadoop: Configuration = relation.sparkSession.sessionState.newHadoopConfWithOptions(relation.options)

  override def options: Map[String, String] = relation.options

  override def partitionSchema: StructType = relation.partitionSchema

  override def refused: Option[String] = {
    val conf = SQLConf.get
    val options = new FileSourceOptions(CaseInsensitiveMap(relation.options))
    if (options.ignoreCorruptFiles || options.ignoreMissingFiles) Some(Reason("FILES_IGNORED"))
    else if (conf.isParquetINT96TimestampConversion) Some(Reason("INT96_CONVERSION"))
    else if (relation.sparkSession.sessionState.conf.getConfString("parquet.crypto.factory.class", "").nonEmpty) {
      Some(Reason("FILES_MAY_BE_ENCRYPTED"))
    } else partitionSchema.find(field => !ParquetFiles.isText(field.dataType)).map { field =>
      Reason("PARTITION_COLUMN_TYPE", field.name, field.dataType.simpleString)
    }
  }

  override def stored(column: Attribute): Either[String, StoredColumn] =
    relation.dataSchema.find(_.name == column.name).toRight(
      Reason("COLUMN_NOT_IN_FILES", column.name)).flatMap { field =>
      if (field.metadata.contains(ExistsDefault))
        Left(Reason("COLUMN_DEFAULT", column.name))
      else Right(inFiles(field))
    }

  /** The name or id by which Spark's reader finds the column. */
  protected def inFiles(field: StructField): StoredColumn =
    if (SQLConf.get.parquetFieldIdReadEnabled && ParquetUtils.hasFieldId(field))
      NumberedColumn(ParquetUtils.getFieldId(field))
    else NamedColumn(field.name)

  override def listed: Seq[ListedFile] =
    Try(relation.location.listFiles(Nil, Nil).flatMap(_.files)).getOrElse(Nil)
      .map(file => ListedFile(file.getPath, file.getModificationTime, file.getLen))

  override def state: Option[String] = None
}

object RelationTable {
  private val ExistsDefault = "EXISTS_DEFAULT"

  /** The table of a relation, or the reason why workers do not read its files. */
  def of(relation: HadoopFsRelation): Either[String, FileTable] = relation.fileFormat match {
    case plain if plain.getClass == classOf[ParquetFileFormat] => Right(new RelationTable(relation))
    case format if format.getClass.getName == DeltaTable.Format => Right(new DeltaTable(relation))
    case other => Left(Reason("NOT_PARQUET", other)) // subclasses give a file another meaning
  }
}
