package org.apache.spark.sql.sparkext.scan

import scala.util.Try

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, PartitionedFile}
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.sql.types._

/** A Delta Lake table. Its log lists its files, the names of its columns in them, and their deleted rows. */
class DeltaTable(relation: HadoopFsRelation) extends RelationTable(relation) {
  import DeltaTable._

  private val format: AnyRef = relation.fileFormat
  private val index: AnyRef = relation.location

  override def refused: Option[String] =
    if (LibraryCalls.call(format, "isCDCRead") == true) Some(Reason("DELTA_CHANGE_FEED")) else super.refused

  override protected def inFiles(field: StructField): StoredColumn =
    super.inFiles(
      LibraryCalls.call(format, "prepareSchemaForRead", StructType(Seq(field))).asInstanceOf[StructType].head)

  override def marksDeleted(column: Attribute): Boolean = column.name == DeletionMark && hasDeletions

  /** Whether Delta has planned to skip deleted rows. */
  private def hasDeletions: Boolean = tablePath.isDefined

  private def tablePath: Option[String] = LibraryCalls.call(format, "tablePath").asInstanceOf[Option[String]]

  /** The files that the query was prepared to read. Listing more would run jobs. */
  override def listed: Seq[ListedFile] = Try {
    val files = LibraryCalls.call(LibraryCalls.call(index, "preparedScan"), "files").asInstanceOf[Seq[AnyRef]]
    files.map { file =>
      val path = LibraryCalls.call(index, "absolutePath", LibraryCalls.call(file, "path")).asInstanceOf[Path]
      ListedFile(path, long(file, "modificationTime"), long(file, "size"))
    }
  }.getOrElse(Nil)

  override def state: Option[String] = Try(s"version ${long(index, "version")}").toOption

  /** The positions of the deleted rows of a file, or the reason why they are unknown. */
  def deleted(file: PartitionedFile, settings: Configuration): Either[String, Array[Long]] = {
    val told = file.otherConstantMetadataColumnValues
    (told.get(Vector), told.get(Use)) match {
      case (None, None) => Right(Array.empty)
      case (Some(_), _) if !hasDeletions => Left(Reason("DELETED_ROWS_KEPT"))
      case (Some(vector: String), Some(use)) if use.toString == LeavesOut => Right(read(vector, settings))
      case (_, use) => Left(Reason("DELETED_ROWS_USED", use.getOrElse("unknown")))
    }
  }

  private def read(vector: String, settings: Configuration): Array[Long] = {
    val descriptor =
      LibraryCalls.callModule(s"$Package.actions.DeletionVectorDescriptor", format, "deserializeFromBase64", vector)
    val store = LibraryCalls.callModule(s"$Package.storage.dv.DeletionVectorStore", format, "createInstance", settings)
    val bitmap = LibraryCalls.callModule(
      s"$Package.deletionvectors.StoredBitmap",
      format,
      "create",
      descriptor,
      new Path(tablePath.get))
    val positions = LibraryCalls.call(LibraryCalls.call(bitmap, "load", store), "toArray").asInstanceOf[Array[Long]]
    val told = long(descriptor, "cardinality")
    if (positions.length != told)
      throw new IllegalStateException(s"${positions.length} rows in a deletion vector of $told")
    positions
  }
}

object DeltaTable {
  private val Package = "org.apache.spark.sql.delta"
  val Format: String = s"$Package.DeltaParquetFileFormat"
  private val DeletionMark = "__delta_internal_is_row_deleted"

  // The metadata that Delta passes to its reader for a file: two keys, and the value of the second for deleted rows.
  private val Vector = "row_index_filter_id_encoded"
  private val Use = "row_index_filter_type"
  private val LeavesOut = "IF_CONTAINED"

  private def long(target: AnyRef, member: String): Long = LibraryCalls.call(target, member).asInstanceOf[Long]
}
