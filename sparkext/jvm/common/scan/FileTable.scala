package org.apache.spark.sql.sparkext

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.parquet.schema.{MessageType, Type}
import org.json4s.JsonAST.{JInt, JString, JValue}

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation
import org.apache.spark.sql.types.StructType

/** A table whose rows lie in Parquet files: plain ones, or those of a format of tables, which gives files another meaning. */
trait FileTable {

  /** Hadoop's settings with which Spark reads the files, and the options of its reader. */
  def hadoop: Configuration
  def options: Map[String, String]

  /** Columns of which all rows of a file have the same value, which is told apart from the file. */
  def partitionSchema: StructType

  /** Why the table is left to Spark, whatever is asked of it. */
  def refused: Option[String]

  /** How files call a column; or why none has it. */
  def stored(column: Attribute): Either[String, StoredColumn]

  /** The number of the value that partitions have of a column, or what files call it; or why neither is known. */
  def place(column: Attribute): Either[String, Either[Int, StoredColumn]] =
    partitionSchema.fieldNames.indexOf(column.name) match {
      case -1 => stored(column).map(Right(_))
      case number => Right(Left(number))
    }

  /** Whether Spark would not read a file without the column. */
  def isRequired(column: Attribute): Boolean = false

  /** Whether a column is 0 for rows that count, and says nothing else. */
  def marksDeleted(column: Attribute): Boolean = false

  /** Its files, as far as planning knows them already. */
  def listed: Seq[ListedFile]

  /** Which state of the table is read, in words. */
  def state: Option[String]
}

object FileTable {

  /** The table that a leaf of a plan reads, if it is one of files. */
  def unapply(plan: LogicalPlan): Option[FileTable] = plan match {
    case LogicalRelation(relation: HadoopFsRelation, _, _, _, _) => RelationTable.of(relation).toOption
    case relation: DataSourceV2ScanRelation => IcebergTable.of(relation.scan).toOption
    case _ => None
  }
}

case class ListedFile(path: Path, modified: Long, size: Long) {
  def identity: FileIdentity = FileStores.identity(path, modified, size)
}

/** How the files of a table call a column of it. */
sealed trait StoredColumn {

  /** The columns of a file that it may be. */
  def in(schema: MessageType, caseSensitive: Boolean): Seq[Type]

  /** As workers are told. */
  def json: JValue
}

/** The column of this name. */
case class NamedColumn(name: String) extends StoredColumn {
  override def in(schema: MessageType, caseSensitive: Boolean): Seq[Type] = schema.getFields.asScala.toSeq.filter { field =>
    if (caseSensitive) field.getName == name else field.getName.equalsIgnoreCase(name)
  }
  override def json: JValue = JString(name)
}

/** The column of this field id, whatever its name is. */
case class NumberedColumn(id: Int) extends StoredColumn {
  override def in(schema: MessageType, caseSensitive: Boolean): Seq[Type] =
    schema.getFields.asScala.toSeq.filter(field => field.getId != null && field.getId.intValue == id)
  override def json: JValue = JInt(id)
}
