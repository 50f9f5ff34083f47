package org.apache.spark.sql.sparkext.shuffle

import java.io.File
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.Files
import java.util.concurrent.ConcurrentHashMap

import org.json4s.JsonAST.{JObject, JString}

import org.apache.spark.{ShuffleDependency, SparkEnv, TaskContext}
import org.apache.spark.internal.config.SHUFFLE_SERVICE_ENABLED
import org.apache.spark.rdd.RDD
import org.apache.spark.scheduler.MapStatus
import org.apache.spark.shuffle.{IndexShuffleBlockResolver, ShuffleWriteProcessor}
import org.apache.spark.shuffle.sort.SortShuffleManager
import org.apache.spark.sql.sparkext.build_sides.OwnFiles
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.sql.sparkext.shim.SparkShim
import org.apache.spark.sql.types.StructType

/** The files that workers write for Spark's shuffle: their locations, and how they become output of a map task.
  *
  * A worker reads the location of its file from a note, in the folder with the reports of `run`, and writes the file
  * bucket by bucket. Spark's own resolver then commits it as map output, with its index: it is served, found and
  * removed like other map output.
  */
class MapFiles(val run: String) extends ShuffleWriteProcessor with RowTransport {
  import MapFiles._

  /** The id of the shuffle, set before any task starts. */
  private var shuffle = -1

  def of(dependency: ShuffleDependency[_, _, _]): Unit = shuffle = dependency.shuffleId

  override def result: StructType = SentSide.Account
  override def order: JObject = JObject("run" -> JString(run))

  /** In a task, before its worker starts: writes the note with the location of the worker's file. */
  override def announce(task: TaskContext): Unit = {
    val files = resolver
    val file = files.createTempFile(files.getDataFile(shuffle, task.taskAttemptId()))
    // A shuffle service may run as another user and reads the file like Spark's own files. Without a shuffle service,
    // only this user can access the file.
    if (!SparkEnv.get.conf.get(SHUFFLE_SERVICE_ENABLED)) Files.createFile(file.toPath, OwnFiles.File)
    val note = OwnFiles.besideTask(run, task, "target")
    Files.writeString(Files.createFile(note, OwnFiles.File), file.getPath)
    announced.put(task.taskAttemptId(), file)
    task.addTaskCompletionListener[Unit] { _ =>
      announced.remove(task.taskAttemptId())
      Files.deleteIfExists(note)
      Files.deleteIfExists(file.toPath) // it has been moved if it was committed as map output
    }
  }

  /** `inputs` has one row: the [[MapAccount]], and the number of bytes of each bucket in the file. */
  override def write(
      inputs: Iterator[_],
      dependency: ShuffleDependency[_, _, _],
      mapId: Long,
      mapIndex: Int,
      task: TaskContext): MapStatus = {
    val env = SparkEnv.get
    val metrics = task.taskMetrics().shuffleWriteMetrics
    // A writer that writes nothing: it registers the map task, so that Spark removes its files with the shuffle.
    SparkShim.shuffleManager(env).getWriter[Any, Any](dependency.shuffleHandle, mapId, task, metrics).stop(false)
    val (account, bytes) = inputs.next().asInstanceOf[(MapAccount, Array[Byte])]
    if (inputs.hasNext) throw new IllegalStateException("more than one row about a file")
    val lengths = numbers(bytes)
    val file = announced.get(task.taskAttemptId())
    if (file.length != lengths.sum) {
      throw new IllegalStateException(Reason("MAP_OUTPUT_LENGTH", lengths.sum, file, file.length))
    }
    resolver.writeMetadataFileAndCommit(dependency.shuffleId, mapId, lengths, Array.empty, file)
    metrics.incBytesWritten(lengths.sum)
    metrics.incRecordsWritten(account.rows)
    SparkShim.mapStatus(env.blockManager.shuffleServerId, lengths, mapId, account.checksum)
  }
}

/** The content of a map task's file: the number of rows, and the sum of the hashes of their keys, or of all columns if
  * there are no keys. The sum does not depend on the order of rows. If a rerun task reports another sum, it has sent
  * rows to other partitions, which Spark detects from 4.1 on.
  */
case class MapAccount(rows: Long, checksum: Long)

object MapFiles {

  /** One row per map task: its account, and the number of bytes of each bucket in its file; and the shuffle of them. */
  type Accounts = RDD[(MapAccount, Array[Byte])]
  type Sending = ShuffleDependency[MapAccount, Array[Byte], Array[Byte]]

  /** The file of each running task, by the id of its attempt. */
  private val announced = new ConcurrentHashMap[Long, File]()

  private def resolver: IndexShuffleBlockResolver =
    SparkShim.shuffleManager(SparkEnv.get).asInstanceOf[SortShuffleManager].shuffleBlockResolver

  /** The numbers that a worker has sent as bytes: little-endian 64-bit integers. */
  def numbers(bytes: Array[Byte]): Array[Long] = {
    val found = new Array[Long](bytes.length / java.lang.Long.BYTES)
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer.get(found)
    found
  }
}
