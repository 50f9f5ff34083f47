package org.apache.spark.sql.sparkext.scan

import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.catalyst.expressions.{Attribute, PlanExpression}
import org.apache.spark.sql.catalyst.plans.physical.{SinglePartition, UnknownPartitioning}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.{FileSourceScanExec, SparkPlan}
import org.apache.spark.sql.execution.datasources.{FilePartition, FileScanRDD}
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons}

/** A node of Spark's own plan that reads the files of a table. */
trait FileScan {
  def node: SparkPlan
  def table: FileTable

  /** The reason why workers do not perform the scan, if it requires more than files and columns. */
  def refused: Option[String]

  /** The partition value, or the stored column, of a column in the scan's output; or the reason why there is none. */
  def place(column: Attribute): Either[String, Either[Int, StoredColumn]] = table.place(column)

  /** The partitions into which Spark has divided the scan, or the reason why they are unknown. */
  def partitions: Either[String, Seq[FilePartition]]

  /** The positions of the deleted rows in each of these files, in ascending order; or the reason why they are unknown.
    */
  def deleted(partitions: Seq[FilePartition]): Either[String, Map[Path, Array[Long]]]

  /** Whether the output has a column that marks deleted rows: then only a filter on that column may drop them. */
  def marksDeleted: Boolean = node.output.exists(table.marksDeleted)
}

object FileScan {

  /** The scan of a plan node, or the reason why it is none. */
  def of(plan: SparkPlan): Either[String, FileScan] = plan match {
    case scan: FileSourceScanExec => RelationTable.of(scan.relation).map(new RelationScan(scan, _))
    case scan: BatchScanExec => IcebergTable.of(scan.scan).map(new IcebergScan(scan, _))
    case other => Left(Reason("NOT_A_FILE_SCAN", other.nodeName))
  }

  private class RelationScan(override val node: FileSourceScanExec, override val table: FileTable) extends FileScan {
    override def refused: Option[String] =
      if (node.partitionFilters.exists(_.exists(_.isInstanceOf[PlanExpression[_]])))
        Some(Reason("PARTITIONS_AT_RUN_TIME"))
      else if (node.outputPartitioning == SinglePartition) Some(Reason("SINGLE_TASK"))
      else None

    /** Columns of the table may have the same names as metadata columns, so metadata columns are recognised by their
      * ids.
      */
    override def place(column: Attribute): Either[String, Either[Int, StoredColumn]] =
      if (node.fileConstantMetadataColumns.exists(_.exprId == column.exprId)) Left(Reason("FILE_METADATA"))
      else super.place(column)

    override def partitions: Either[String, Seq[FilePartition]] =
      node.getTagValue(Found).filter(_.scan == node).map(listed => Right(listed.partitions)).getOrElse {
        val listed = listing(node.inputRDD match {
          case files: FileScanRDD => Right(files.filePartitions)
          case other => Left(Reason("SPLITS_NOT_FILES", other))
        })
        listed.foreach(partitions => node.setTagValue(Found, Listed(node, partitions)))
        listed
      }

    override def deleted(partitions: Seq[FilePartition]): Either[String, Map[Path, Array[Long]]] = table match {
      case delta: DeltaTable =>
        lazy val settings = delta.hadoop
        val files = partitions.flatMap(_.files).distinctBy(_.filePath)
        Reasons.all(SideBySide(files)(file => reading(delta.deleted(file, settings)).map(file.toPath -> _)))
          .map(_.filter { case (_, rows) => rows.nonEmpty }.toMap)
      case _ => Right(Map.empty)
    }
  }

  private class IcebergScan(override val node: BatchScanExec, override val table: IcebergTable) extends FileScan {
    override def refused: Option[String] =
      if (node.runtimeFilters.nonEmpty) Some(Reason("PARTITIONS_AT_RUN_TIME"))
      else node.outputPartitioning match {
        case SinglePartition | _: UnknownPartitioning => None
        case _ => Some(Reason("PARTITIONED_BY_KEYS"))
      }

    override def partitions: Either[String, Seq[FilePartition]] = listing(Right(table.partitions))

    override def deleted(partitions: Seq[FilePartition]): Either[String, Map[Path, Array[Long]]] =
      reading(Right(table.deleted))
  }

  /** The partitions into which Spark has divided a scan, cached at its node. Computing the partitions of a scan
    * broadcasts Hadoop's settings. Without the cache this happens for every copy of the scan, and plans are copied
    * before they run and each time that they are shown.
    */
  private case class Listed(scan: FileSourceScanExec, partitions: Seq[FilePartition])
  private val Found: TreeNodeTag[Listed] = TreeNodeTag[Listed]("sparkext.partitions")

  private def listing[T](body: => Either[String, T]): Either[String, T] =
    try body
    catch { case NonFatal(problem) => Left(Reason("FILES_NOT_LISTED", problem)) }

  private def reading[T](body: => Either[String, T]): Either[String, T] =
    try body
    catch { case NonFatal(problem) => Left(Reason("DELETED_ROWS_UNREADABLE", problem)) }
}
