package org.apache.spark.sql.sparkext.scan

import java.util.function.{Function => JavaFunction, LongConsumer}

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try

import com.google.common.cache.CacheBuilder
import org.apache.hadoop.conf.{Configurable, Configuration}
import org.apache.hadoop.fs.Path

import org.apache.spark.paths.SparkPath
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.connector.read.Scan
import org.apache.spark.sql.execution.datasources.{FilePartition, PartitionedFile}
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.sql.types.StructType

/** A snapshot of an Iceberg table, as a query scans it. Files are read by the ids of columns, whatever their names are.
  */
class IcebergTable private (scan: Scan) extends FileTable {
  import IcebergTable._

  private lazy val groups: Seq[Seq[FileTask]] = list(scan, "taskGroups").map(list(_, "tasks").map(new FileTask(_)))
  private lazy val tasks: Seq[FileTask] = groups.flatten
  private lazy val table: AnyRef = LibraryCalls.call(scan, "table")
  private lazy val files: AnyRef = LibraryCalls.call(table, "io")
  private lazy val columns: Map[String, AnyRef] =
    list(LibraryCalls.call(scan, "projection"), "columns").map(field =>
      LibraryCalls.call(field, "name").toString -> field).toMap

  override lazy val hadoop: Configuration = files match {
    case configured: Configurable => configured.getConf
    case _ => SparkSession.active.sessionState.newHadoopConf()
  }

  /** Iceberg does not rebase dates and timestamps. */
  override def options: Map[String, String] = Map("datetimeRebaseMode" -> "CORRECTED", "int96RebaseMode" -> "CORRECTED")

  /** Files contain all columns, including those by which the table is partitioned. */
  override def partitionSchema: StructType = new StructType()

  override def refused: Option[String] =
    tasks.flatMap(_.refused).headOption.orElse {
      if (tasks.forall(task => task.isLocal) || files.getClass.getName == HadoopFiles) None
      else Some(Reason("ICEBERG_FILE_IO", files.getClass.getSimpleName))
    }

  override def stored(column: Attribute): Either[String, StoredColumn] =
    columns.get(column.name).toRight(Reason("COLUMN_NOT_IN_FILES", column.name)).flatMap { field =>
      val id = LibraryCalls.call(field, "fieldId").asInstanceOf[Int]
      if (id >= FirstReserved) Left(Reason("ICEBERG_METADATA", column.name))
      else if (LibraryCalls.call(field, "initialDefault") != null)
        Left(Reason("COLUMN_DEFAULT", column.name))
      else Right(NumberedColumn(id))
    }

  override def isRequired(column: Attribute): Boolean =
    columns.get(column.name).exists(field => LibraryCalls.call(field, "isRequired") == true)

  override def listed: Seq[ListedFile] =
    Try(tasks.map(task => ListedFile(task.path, 0L, task.size)).distinct).getOrElse(Nil)

  override def state: Option[String] =
    Option(LibraryCalls.call(scan, "snapshotId")).map(snapshot => s"snapshot $snapshot")

  /** The partitions into which Iceberg has divided the scan. Iceberg starts the first split of a file at its first row
    * group, after four bytes; here it starts at 0.
    */
  def partitions: Seq[FilePartition] = {
    val first = tasks.groupMapReduce(_.path)(_.start)(math.min(_, _))
    groups.zipWithIndex.map { case (group, number) =>
      val parts = group.map { task =>
        val start = if (task.start == first(task.path)) 0L else task.start
        PartitionedFile(
          InternalRow.empty,
          SparkPath.fromPath(task.path),
          start,
          task.start + task.length - start,
          fileSize = task.size)
      }
      FilePartition(number, parts.toArray)
    }
  }

  /** The positions of deleted rows in ascending order, for each file that has any. */
  def deleted: Map[Path, Array[Long]] = {
    val loads: JavaFunction[AnyRef, AnyRef] = file => LibraryCalls.call(files, "newInputFile", file)
    lazy val loader = LibraryCalls.make("org.apache.iceberg.data.BaseDeleteLoader", scan, loads)
    val marked = tasks.filter(_.deletes.nonEmpty).distinctBy(_.path)
    SideBySide(marked) { task =>
      val positions = mutable.ArrayBuilder.make[Long]
      val found = LibraryCalls.call(loader, "loadPositionDeletes", task.deletes.asJava, task.location)
      val adds: LongConsumer = position => positions += position
      LibraryCalls.call(found, "forEach", adds)
      task.path -> positions.result().sorted
    }.toMap
  }

  /** A part of a file that a task reads. */
  private class FileTask(task: AnyRef) {
    private lazy val file: AnyRef = LibraryCalls.call(task, "file")

    lazy val location: String = LibraryCalls.call(file, "location").toString
    lazy val path: Path = {
      val named = new Path(location)
      named.getFileSystem(hadoop).makeQualified(named)
    }
    def isLocal: Boolean = path.toUri.getScheme == "file"
    def start: Long = LibraryCalls.call(task, "start").asInstanceOf[Long]
    def length: Long = LibraryCalls.call(task, "length").asInstanceOf[Long]
    lazy val size: Long = LibraryCalls.call(file, "fileSizeInBytes").asInstanceOf[Long]
    lazy val deletes: Seq[AnyRef] = list(task, "deletes")

    def refused: Option[String] = {
      val format = LibraryCalls.call(file, "format").toString
      if (format != "PARQUET") Some(Reason("NOT_PARQUET", s"$format files of Iceberg"))
      else if ((file +: deletes).exists(LibraryCalls.call(_, "keyMetadata") != null)) Some(Reason("ICEBERG_ENCRYPTED"))
      else
        deletes.map(LibraryCalls.call(_, "content").toString).find(_ != "POSITION_DELETES").map(_ =>
          Reason("EQUALITY_DELETES"))
    }
  }
}

object IcebergTable {
  private val BatchScan = "org.apache.iceberg.spark.source.SparkBatchQueryScan"
  private val HadoopFiles = "org.apache.iceberg.hadoop.HadoopFileIO"

  /** Field ids from here on belong to metadata columns. */
  private val FirstReserved = Int.MaxValue - 200

  private val known = CacheBuilder.newBuilder().weakKeys().build[Scan, IcebergTable]()

  /** The table of a scan, or the reason why workers do not read it. */
  def of(scan: Scan): Either[String, IcebergTable] =
    if (scan.getClass.getName == BatchScan) Right(known.get(scan, () => new IcebergTable(scan)))
    else Left(Reason("NOT_A_FILE_SCAN", scan.getClass.getSimpleName))

  private def list(target: AnyRef, member: String): Seq[AnyRef] = LibraryCalls.call(target, member) match {
    case several: java.lang.Iterable[_] => several.asScala.map(_.asInstanceOf[AnyRef]).toSeq
    case other => throw new IllegalStateException(s"$member of ${target.getClass.getName} is $other")
  }
}
