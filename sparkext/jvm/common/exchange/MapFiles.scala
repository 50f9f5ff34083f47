package org.apache.spark.sql.sparkext

import java.io.File
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.Files
import java.util.concurrent.ConcurrentHashMap

import org.json4s.JsonAST.{JObject, JString}

import org.apache.spark.{ShuffleDependency, SparkEnv, TaskContext}
import org.apache.spark.internal.config.SHUFFLE_SERVICE_ENABLED
import org.apache.spark.scheduler.MapStatus
import org.apache.spark.shuffle.{IndexShuffleBlockResolver, ShuffleWriteProcessor}
import org.apache.spark.shuffle.sort.SortShuffleManager
import org.apache.spark.sql.types.StructType

/** The files that workers write for Spark's shuffle: where they go, and how they become output of a map task.
  *
  * A worker is told of its file beside the reports of `run`, and writes it line by line. Spark's own resolver makes it a map output
  * then, with its index: it is served, found and removed as any other.
  */
class MapFiles(val run: String) extends ShuffleWriteProcessor with LeavingWay {
  import MapFiles._

  /** Known before any task begins. */
  private var shuffle = -1

  def of(dependency: ShuffleDependency[_, _, _]): Unit = shuffle = dependency.shuffleId

  override def result: StructType = SentSide.Account
  override def order: JObject = JObject("run" -> JString(run))

  /** In a task, before its worker begins: say where its file is to be. */
  override def announce(task: TaskContext): Unit = {
    val files = resolver
    val file = files.createTempFile(files.getDataFile(shuffle, task.taskAttemptId()))
    // Who serves it, another user maybe, reads it as Spark's own files; else it is nobody's but ours.
    if (!SparkEnv.get.conf.get(SHUFFLE_SERVICE_ENABLED)) Files.createFile(file.toPath, OwnFiles.File)
    val note = OwnFiles.besideTask(run, task, "target")
    Files.writeString(Files.createFile(note, OwnFiles.File), file.getPath)
    announced.put(task.taskAttemptId(), file)
    task.addTaskCompletionListener[Unit] { _ =>
      announced.remove(task.taskAttemptId())
      Files.deleteIfExists(note)
      Files.deleteIfExists(file.toPath) // unless it is a map output by now
    }
  }

  /** `inputs` has one row: see [[MapAccount]], and how many bytes each line takes in the file. */
  override def write(
      inputs: Iterator[_],
      dependency: ShuffleDependency[_, _, _],
      mapId: Long,
      mapIndex: Int,
      task: TaskContext): MapStatus = {
    val env = SparkEnv.get
    val metrics = task.taskMetrics().shuffleWriteMetrics
    // A writer that writes nothing: so Spark learns of the map, and removes its files with the shuffle.
    SparkShim.shuffleManager(env).getWriter[Any, Any](dependency.shuffleHandle, mapId, task, metrics).stop(false)
    val (account, bytes) = inputs.next().asInstanceOf[(MapAccount, Array[Byte])]
    if (inputs.hasNext) throw new IllegalStateException("more than one account of a file")
    val lengths = numbers(bytes)
    val file = announced.get(task.taskAttemptId())
    if (file.length != lengths.sum) {
      throw new IllegalStateException(s"workers told of ${lengths.sum} bytes, and $file has ${file.length}")
    }
    resolver.writeMetadataFileAndCommit(dependency.shuffleId, mapId, lengths, Array.empty, file)
    metrics.incBytesWritten(lengths.sum)
    metrics.incRecordsWritten(account.rows)
    SparkShim.mapStatus(env.blockManager.shuffleServerId, lengths, mapId, account.checksum)
  }
}

/** What is in the file of a map task: how many rows, and the sum of the hashes of their keys, in whichever order they come. A task that
  * has run again and tells of another sum has sent rows elsewhere, of which Spark tells from 4.1 on.
  */
case class MapAccount(rows: Long, checksum: Long)

object MapFiles {

  /** By the number of the attempt. */
  private val announced = new ConcurrentHashMap[Long, File]()

  private def resolver: IndexShuffleBlockResolver =
    SparkShim.shuffleManager(SparkEnv.get).asInstanceOf[SortShuffleManager].shuffleBlockResolver

  /** The numbers that a worker has sent as bytes. */
  def numbers(bytes: Array[Byte]): Array[Long] = {
    val found = new Array[Long](bytes.length / java.lang.Long.BYTES)
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer.get(found)
    found
  }
}
