package org.apache.spark.sql.sparkext.build_sides

import java.io.{BufferedOutputStream, File, IOException}
import java.util.zip.{CRC32, CheckedOutputStream}

import scala.collection.mutable

import org.apache.spark.{SparkContext, SparkDriverExecutionException, SparkException, TaskContext}
import org.apache.spark.api.python.PythonBroadcast
import org.apache.spark.internal.config.MAX_RESULT_SIZE
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.sparkext.arrow.{ColumnarInput, ColumnarParts}
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.sql.sparkext.shim.SparkShim
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.ThreadUtils

/** Runs a build side as an ordinary Spark job whose results stream, partition by partition, to a file on the driver.
  *
  * `columns`: the columns from which `child` makes its rows, if it does. `ordered`: whether rows have to be in the
  * order of partitions, as for an as-of join, which takes the last of equally near rows.
  */
class BuildSidePublisher(
    context: SparkContext,
    child: SparkPlan,
    columns: Option[ColumnarInput],
    schema: StructType,
    label: String,
    maxBytes: Long,
    timeZone: String,
    ordered: Boolean)
    extends BuildSidePreparation(context, s"build side of the join on $label") {
  import BuildSidePublisher._

  override def prepare(): Option[PublishedBuildSide] =
    try Some(published())
    catch { case failure: Throwable => throw explained(failure) }

  private def published(): PublishedBuildSide = {
    val file = BuildSideFile.unused(context)
    try {
      val (rows, bytes, crc) = write(file)
      val content = new PythonBroadcast(file.getPath)
      val broadcast = context.broadcast(content)
      // The file is removed only when its content is no longer referenced. Until then the broadcast may be used again.
      // Spark also reads the file if it evicts the content from memory to disk.
      PublishedBuildSide(broadcast, rows, bytes, crc, BuildSideFile.removedWith(content, file))
    } catch {
      case failure: Throwable =>
        file.delete()
        throw failure
    }
  }

  private def write(file: File): (Long, Long, Long) = {
    val sum = new CRC32
    val stream =
      new BufferedOutputStream(new CheckedOutputStream(BuildSideFile.created(file), sum), BuildSideFile.BufferBytes)
    var rows = 0L
    var bytes = 0L
    val empty = SparkShim.emptyArrowStream(schema, timeZone) // a build side without rows still has columns
    val written = mutable.ArrayBuffer.empty[(Int, Long)]
    try {
      stream.write(empty)
      def receive(partition: Int, part: ArrowPart): Unit = {
        val (partRows, batches) = part
        val size = batches.map(_.length.toLong).sum
        rows += partRows
        bytes += size
        if (bytes > maxBytes) throw tooLarge(rows, bytes)
        batches.foreach(stream.write)
        written += partition -> size
      }
      context.setLocalProperty(SparkShim.Uncompressed._1, SparkShim.Uncompressed._2)
      asJob {
        val sent = columns match {
          case Some(input) => input.execute().mapPartitionsInternal(new ColumnarParts(schema, timeZone))
          case None => child.execute().mapPartitionsInternal(rowsToArrow(schema, timeZone))
        }
        failIfCancelled()
        context.runJob(
          sent,
          (_: TaskContext, parts: Iterator[ArrowPart]) => parts.next(),
          sent.partitions.indices,
          receive(_: Int, _: ArrowPart))
      }
    } finally stream.close()
    val moved = ordered && BuildSideFile.sort(file, empty.length.toLong, written.toSeq)
    (rows, bytes, if (moved) BuildSideFile.crcOf(file) else sum.getValue)
  }

  private def tooLarge(rows: Long, bytes: Long) = new BuildSideTooLargeException(
    Reason("BUILD_SIDE_OVER_LIMIT", label, rows, bytes, maxBytes),
    bytes)

  private def explained(failure: Throwable): Throwable = failure match {
    case received: SparkDriverExecutionException => explained(received.getCause)
    case disk: IOException =>
      new BuildSideTooLargeException(Reason("BUILD_SIDE_EXCEEDS_DISK", label, disk), 0)
    case job: SparkException if Option(job.getMessage).exists(_.contains(MAX_RESULT_SIZE.key)) =>
      val most = context.conf.get(MAX_RESULT_SIZE)
      new BuildSideTooLargeException(Reason("BUILD_SIDE_EXCEEDS_DRIVER", label, MAX_RESULT_SIZE.key, most), most)
    case other => other
  }
}

object BuildSidePublisher {

  /** The rows of one partition: their number, and Arrow streams of one batch each. It is the result of a task, so its
    * class must not be in this package: Kryo may be configured to serialise registered classes only.
    */
  private[sparkext] type ArrowPart = (Long, Array[Array[Byte]])

  /** Converts the rows of one partition. */
  private def rowsToArrow(schema: StructType, timeZone: String): Iterator[InternalRow] => Iterator[ArrowPart] = {
    rows =>
      var count = 0L
      val counted = rows.map { row =>
        count += 1
        row
      }
      val batches = SparkShim.toArrow(counted, schema, timeZone).toArray
      Iterator.single(count -> batches)
  }

  /** Threads that wait for build jobs. Idle threads end. */
  private[sparkext] val threads = ThreadUtils.newDaemonCachedThreadPool("sparkext-build-side")
}
