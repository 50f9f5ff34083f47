package org.apache.spark.sql.sparkext

import java.io.{BufferedOutputStream, File, FileInputStream, IOException}
import java.lang.ref.Cleaner
import java.nio.channels.{Channels, FileChannel}
import java.nio.file.{Files, Path, Paths}
import java.nio.file.StandardCopyOption.REPLACE_EXISTING
import java.nio.file.StandardOpenOption.{CREATE_NEW, READ, WRITE}
import java.nio.file.attribute.{FileAttribute, PosixFilePermission, PosixFilePermissions}
import java.util.{Set => JavaSet, UUID}
import java.util.concurrent.{Executors, ThreadFactory}
import java.util.zip.{CRC32, CheckedInputStream, CheckedOutputStream}

import scala.collection.mutable
import scala.util.Using

import org.apache.spark.{SparkContext, SparkDriverExecutionException, SparkException, TaskContext}
import org.apache.spark.api.python.PythonBroadcast
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.internal.config.MAX_RESULT_SIZE
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.{ShutdownHookManager, Utils}

/** A build side that every node can read: its rows as Arrow streams, one after the other, in the broadcast's local file.
  *
  * `crc`: the CRC-32 of the file. Spark checks what it sends, but not what lies on a node's disk. `file`: removes it.
  */
case class PublishedBuildSide(broadcast: Broadcast[PythonBroadcast], rows: Long, bytes: Long, crc: Long, file: Cleaner.Cleanable) {

  /** To be called once, where no task has been told of it. */
  def release(): Unit = {
    broadcast.destroy()
    file.clean()
  }
}

/** What has to be done for a build side before any task of the join begins, in jobs that can be cancelled. */
abstract class BuildSidePreparation(context: SparkContext, label: String) {
  private val tag = s"sparkext-build-${UUID.randomUUID()}"
  @volatile private var cancelled = false

  /** What tasks have to be told of, if anything. Raises a [[BuildSideTooLargeException]] where the build side does not fit. */
  def prepare(): Option[PublishedBuildSide]

  /** Called where nobody needs the build side any more. */
  def cancel(): Unit = {
    cancelled = true
    context.cancelJobsWithTag(tag)
  }

  /** Runs what starts jobs: they are cancelled with the preparation, and with whatever fails here. */
  protected def asJob[T](body: => T): T = {
    context.addJobTag(tag)
    context.setJobDescription(s"build side of the join on $label")
    try body
    catch {
      case failure: Throwable =>
        context.cancelJobsWithTag(tag)
        throw failure
    } finally context.removeJobTag(tag)
  }

  /** To be asked right before a job starts: none runs yet that could have been cancelled. */
  protected def failIfCancelled(): Unit =
    if (cancelled) throw new SparkException(s"the build side of the join on $label was cancelled")
}

/** Runs a build side as an ordinary Spark job whose results stream, partition by partition, to a file on the driver.
  *
  * `columns`: what `child` emits without making rows of it, where it does.
  * `ordered`: rows have to be in the order of partitions, as for an as-of join, which takes the last of equally near rows.
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
    extends BuildSidePreparation(context, label) {
  import BuildSidePublisher._

  override def prepare(): Option[PublishedBuildSide] =
    try Some(published())
    catch { case failure: Throwable => throw explained(failure) }

  private def published(): PublishedBuildSide = {
    val file = new File(folder(context), UUID.randomUUID().toString)
    try {
      val (rows, bytes, crc) = write(file)
      val content = new PythonBroadcast(file.getPath)
      val broadcast = context.broadcast(content)
      // Whoever still holds the broadcast may run it again, and as long as Spark keeps its content in memory, Spark may
      // write it to disk to make room, for which it reads the file: the file goes when nobody holds either.
      PublishedBuildSide(broadcast, rows, bytes, crc, cleaner.register(content, new RemoveWithSiblings(file)))
    } catch {
      case failure: Throwable =>
        file.delete()
        throw failure
    }
  }

  private def write(file: File): (Long, Long, Long) = {
    val sum = new CRC32
    val stream = new BufferedOutputStream(new CheckedOutputStream(Channels.newOutputStream(created(file.toPath)), sum), BufferBytes)
    var rows = 0L
    var bytes = 0L
    val empty = SparkShim.emptyArrowStream(schema, timeZone) // a build side without rows has columns all the same
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
          case None => child.execute().mapPartitionsInternal(new ToArrow(schema, timeZone))
        }
        failIfCancelled()
        context.runJob(
          sent,
          (_: TaskContext, parts: Iterator[ArrowPart]) => parts.next(),
          sent.partitions.indices,
          receive(_: Int, _: ArrowPart))
      }
    } finally stream.close()
    val moved = ordered && BuildSidePublisher.sort(file, empty.length.toLong, written.toSeq)
    (rows, bytes, if (moved) crcOf(file) else sum.getValue)
  }

  private def tooLarge(rows: Long, bytes: Long) = new BuildSideTooLargeException(
    s"the build side of the join on $label does not fit: its first $rows rows take $bytes bytes, the limit is $maxBytes",
    bytes)

  private def explained(failure: Throwable): Throwable = failure match {
    case received: SparkDriverExecutionException => explained(received.getCause)
    case disk: IOException =>
      new BuildSideTooLargeException(s"the build side of the join on $label does not fit the driver's disk: $disk", 0)
    case job: SparkException if Option(job.getMessage).exists(_.contains(MAX_RESULT_SIZE.key)) =>
      val most = context.conf.get(MAX_RESULT_SIZE)
      new BuildSideTooLargeException(
        s"the build side of the join on $label does not pass the driver: its rows take more than ${MAX_RESULT_SIZE.key}, $most bytes",
        most)
    case other => other
  }
}

/** A build side that takes `bytes` and more, which is too much. Spark's own joins run in place of the pipeline then. */
class BuildSideTooLargeException(message: String, val bytes: Long) extends SparkException(message)

private class ToArrow(schema: StructType, timeZone: String)
    extends (Iterator[InternalRow] => Iterator[BuildSidePublisher.ArrowPart])
    with Serializable {

  override def apply(input: Iterator[InternalRow]): Iterator[BuildSidePublisher.ArrowPart] = {
    var rows = 0L
    val counted = input.map { row =>
      rows += 1
      row
    }
    val batches = SparkShim.toArrow(counted, schema, timeZone).toArray
    Iterator.single(rows -> batches)
  }
}

object BuildSidePublisher {

  /** The rows of one partition: how many, and as Arrow streams of a batch each. It is the result of a task, and so of no class of
    * this package: Kryo may be told to serialize only what is registered.
    */
  private[sparkext] type ArrowPart = (Long, Array[Array[Byte]])

  private def crcOf(file: File): Long = {
    val sum = new CRC32
    Using.resource(new CheckedInputStream(new FileInputStream(file), sum)) { stream =>
      val buffer = new Array[Byte](BufferBytes)
      while (stream.read(buffer) >= 0) {}
    }
    sum.getValue
  }

  /** Bring the parts of a file, given as (number, size) in the order that they were written in, into that of their numbers.
    *
    * Tells whether anything had to be moved.
    */
  private def sort(file: File, header: Long, parts: Seq[(Int, Long)]): Boolean = {
    val starts = parts.scanLeft(header)(_ + _._2)
    val placed = parts.zip(starts).map { case ((number, size), start) => (number, start, size) }
    val unordered = placed != placed.sortBy(_._1)
    if (unordered) {
      val sorted = new File(s"${file.getPath}.sorted")
      try {
        Using.resource(FileChannel.open(file.toPath, READ)) { from =>
          Using.resource(created(sorted.toPath)) { to =>
            ((-1, 0L, header) +: placed.sortBy(_._1)).foreach { case (_, start, size) =>
              var copied = 0L
              while (copied < size) copied += from.transferTo(start + copied, size - copied, to)
            }
          }
        }
        Files.move(sorted.toPath, file.toPath, REPLACE_EXISTING)
      } finally sorted.delete()
    }
    unordered
  }

  private val BufferBytes = 1 << 20
  private val OwnFolder = only("rwx------")
  private val OwnFile = only("rw-------")

  /** What files are made with, so that they are this user's alone from the first moment on, whatever the umask. */
  private def only(permissions: String): FileAttribute[JavaSet[PosixFilePermission]] =
    PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(permissions))

  private def created(path: Path): FileChannel = FileChannel.open(path, JavaSet.of(CREATE_NEW, WRITE), OwnFile)

  private val cleaner = Cleaner.create()

  /** Threads that wait for build jobs; they end when there is nothing to wait for. */
  private[sparkext] val threads = Executors.newCachedThreadPool(new ThreadFactory {
    override def newThread(task: Runnable): Thread = {
      val thread = new Thread(task, "sparkext-build-side")
      thread.setDaemon(true)
      thread
    }
  })

  private var folderOfApplication: Option[(String, File)] = None

  /** This application's folder for build sides on the driver, which no other user enters. It goes when the process ends. */
  private def folder(context: SparkContext): File = synchronized {
    folderOfApplication.collect { case (application, folder) if application == context.applicationId => folder }.getOrElse {
      folderOfApplication.foreach { case (_, stale) => Utils.deleteRecursively(stale) }
      val folder = Files.createTempDirectory(Paths.get(Utils.getLocalDir(context.getConf)), "sparkext-", OwnFolder).toFile
      ShutdownHookManager.registerShutdownDeleteDir(folder)
      folderOfApplication = Some(context.applicationId -> folder)
      folder
    }
  }

  /** Removes a build file and what workers put beside it: the index, its lock, reports. Holds no broadcast, or none ends. */
  private class RemoveWithSiblings(file: File) extends Runnable {
    override def run(): Unit = {
      val siblings = file.getParentFile.listFiles((_, name) => name.startsWith(file.getName + "."))
      Option(siblings).toSeq.flatten.foreach(_.delete())
      file.delete()
    }
  }
}
