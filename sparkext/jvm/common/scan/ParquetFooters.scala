package org.apache.spark.sql.sparkext.scan

import java.util.Locale

import scala.jdk.CollectionConverters._
import scala.jdk.OptionConverters._
import scala.util.Using
import scala.util.control.NonFatal

import com.google.common.cache.CacheBuilder
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.FileStatus
import org.apache.parquet.HadoopReadOptions
import org.apache.parquet.column.statistics.{IntStatistics, LongStatistics, Statistics}
import org.apache.parquet.hadoop.ParquetFileReader
import org.apache.parquet.hadoop.metadata.{BlockMetaData, FileMetaData}
import org.apache.parquet.hadoop.util.HadoopInputFile
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName

import org.apache.spark.sql.sparkext.protocol.Reason

/** The footers of Parquet files, read concurrently and cached. */
private object ParquetFooters {
  private val KeptFooters = 4096L
  private val LongText = 256L

  /** Information in the footer of a file: its metadata, the number of rows, the columns by which its row groups are
    * ordered, the smallest and largest values of integer columns, and the bytes of the values in text columns, by names
    * in lower case.
    */
  case class Footer(
      meta: FileMetaData,
      rows: Long,
      ordered: Set[String],
      ranges: Map[String, (Long, Long)],
      texts: Map[String, Long]) {

    /** The bytes of the values in a text column; 0 for other columns. */
    def bytesOf(column: StoredColumn): Long =
      column.in(meta.getSchema, caseSensitive = false).map(field => texts.getOrElse(lower(field.getName), 0L)).sum

    def isOrdered(column: StoredColumn): Boolean = named(column).exists(ordered.contains)
    def range(column: StoredColumn): Option[(Long, Long)] = named(column).flatMap(ranges.get)

    private def named(column: StoredColumn): Option[String] =
      column.in(meta.getSchema, caseSensitive = true).headOption.map(_.getName)
  }

  private val footers = CacheBuilder.newBuilder().maximumSize(KeptFooters).build[FileIdentity, Footer]()

  /** The footer of each file, or the reason why one cannot be read. */
  def of(files: Seq[FileIdentity], table: FileTable): Either[String, Seq[Footer]] =
    try Right(begun(files, table).map(_()))
    catch { case NonFatal(problem) => Left(Reason("FOOTER_UNREADABLE", problem)) }

  /** Begin to read the footers that are not cached. The returned functions wait for them. */
  def begun(files: Seq[FileIdentity], table: FileTable): Seq[() => Footer] = {
    lazy val hadoop = table.hadoop // takes longer than reading a hundred footers from the cache
    files.map { file =>
      Option(footers.getIfPresent(file)).map(() => _).getOrElse {
        val conf = hadoop
        val task = SideBySide.begun(footers.get(file, () => footer(file, conf)))
        () => SideBySide.awaited(task)
      }
    }
  }

  private def footer(file: FileIdentity, hadoop: Configuration): Footer = {
    val options = HadoopReadOptions.builder(hadoop, file.path).build()
    // The status from the listing saves a request to the store.
    val status = new FileStatus(file.size, false, 1, file.size, file.modified, file.path)
    Using.resource(ParquetFileReader.open(HadoopInputFile.fromStatus(status, hadoop), options)) { reader =>
      val rowGroups = reader.getRowGroups.asScala.toSeq
      Footer(
        reader.getFooter.getFileMetaData,
        reader.getRecordCount,
        ordered(rowGroups),
        ranges(rowGroups),
        texts(rowGroups))
    }
  }

  /** The bytes of the values in text columns. If a writer has not recorded them, values are assumed to be long: with
    * dictionaries, the recorded size is less than the bytes of the values.
    */
  private def texts(rowGroups: Seq[BlockMetaData]): Map[String, Long] =
    rowGroups.flatMap(_.getColumns.asScala).filter(_.getPrimitiveType.getPrimitiveTypeName == PrimitiveTypeName.BINARY)
      .groupMapReduce(chunk => lower(chunk.getPath.toDotString)) { chunk =>
        val told = Option(chunk.getSizeStatistics).filter(_.isValid).flatMap(sizes =>
          sizes.getUnencodedByteArrayDataBytes.toScala)
        told.map(_.longValue).getOrElse(math.max(chunk.getTotalUncompressedSize, chunk.getValueCount * LongText))
      }(_ + _)

  private def lower(name: String): String = name.toLowerCase(Locale.ROOT)

  /** The integer columns in which no row group has a value below the largest value of the row group before it. */
  private def ordered(rowGroups: Seq[BlockMetaData]): Set[String] =
    if (rowGroups.length < 2) Set.empty
    else {
      val columns = rowGroups.map(_.getColumns.asScala.toSeq)
      columns.head.indices.filter { number =>
        val bounds = columns.map(group => group.lift(number).map(_.getStatistics).flatMap(range))
        bounds.forall(_.isDefined) && bounds.flatten.sliding(2).forall { pair => pair.head._2 <= pair.last._1 }
      }.map(number => columns.head(number).getPath.toDotString).toSet
    }

  /** The bounds of integer columns, as far as row groups state them. */
  private def ranges(rowGroups: Seq[BlockMetaData]): Map[String, (Long, Long)] =
    rowGroups.flatMap(_.getColumns.asScala).flatMap { chunk =>
      Option(chunk.getStatistics).flatMap(range).map(chunk.getPath.toDotString -> _)
    }.groupMapReduce(_._1)(_._2) { case ((low, high), (otherLow, otherHigh)) =>
      (math.min(low, otherLow), math.max(high, otherHigh))
    }

  private def range(statistics: Statistics[_]): Option[(Long, Long)] = statistics match {
    case ints: IntStatistics if ints.hasNonNullValue => Some((ints.getMin.toLong, ints.getMax.toLong))
    case longs: LongStatistics if longs.hasNonNullValue => Some((longs.getMin, longs.getMax))
    case _ => None
  }
}
