package org.apache.spark.sql.sparkext.scan

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

/** A table whose rows are stored in Parquet files: plain files, or files that are interpreted by a table format. */
trait FileTable {

  /** Hadoop's settings with which Spark reads the files, and the options of its reader. */
  def hadoop: Configuration
  def options: Map[String, String]

  /** Columns with one value for all rows of a file, which is stored outside the file. */
  def partitionSchema: StructType

  /** Why the table is left to Spark, whatever the query requests. */
  def refused: Option[String]

  /** The name or id of a column in the files, or the reason why no file has it. */
  def stored(column: Attribute): Either[String, StoredColumn]

  /** The index of a column among the partition values, or its name or id in the files; or the reason why neither is
    * known.
    */
  def place(column: Attribute): Either[String, Either[Int, StoredColumn]] =
    partitionSchema.fieldNames.indexOf(column.name) match {
      case -1 => stored(column).map(Right(_))
      case number => Right(Left(number))
    }

  /** Whether Spark rejects a file without the column. */
  def isRequired(column: Attribute): Boolean = false

  /** Whether a column is 0 for rows that are not deleted, and has no other purpose. */
  def marksDeleted(column: Attribute): Boolean = false

  /** The files of the table, as far as they are already known during planning. */
  def listed: Seq[ListedFile]

  /** The state of the table that is read, such as its version, in words. */
  def state: Option[String]
}

object FileTable {

  /** The table that a leaf of a plan reads, if its rows are stored in files. */
  def unapply(plan: LogicalPlan): Option[FileTable] = plan match {
    case LogicalRelation(relation: HadoopFsRelation, _, _, _, _) => RelationTable.of(relation).toOption
    case relation: DataSourceV2ScanRelation => IcebergTable.of(relation.scan).toOption
    case _ => None
  }
}

case class ListedFile(path: Path, modified: Long, size: Long) {
  def identity: FileIdentity = FileStores.identity(path, modified, size)
}

/** The name or id by which files identify a column of a table. */
sealed trait StoredColumn {

  /** The columns of a file that match. */
  def in(schema: MessageType, caseSensitive: Boolean): Seq[Type]

  /** The form that workers receive. */
  def json: JValue
}

/** A column with this name. */
case class NamedColumn(name: String) extends StoredColumn {
  override def in(schema: MessageType, caseSensitive: Boolean): Seq[Type] =
    schema.getFields.asScala.toSeq.filter { field =>
      if (caseSensitive) field.getName == name else field.getName.equalsIgnoreCase(name)
    }
  override def json: JValue = JString(name)
}

/** A column with this field id, whatever its name is. */
case class NumberedColumn(id: Int) extends StoredColumn {
  override def in(schema: MessageType, caseSensitive: Boolean): Seq[Type] =
    schema.getFields.asScala.toSeq.filter(field => field.getId != null && field.getId.intValue == id)
  override def json: JValue = JInt(id)
}
