package org.apache.spark.sql.sparkext.shuffle

import java.io.{File, FileOutputStream, InputStream}
import java.nio.file.Files
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.json4s.JsonAST._

import org.apache.spark.{SparkEnv, SparkException, TaskContext, TaskContextImpl}
import org.apache.spark.internal.config._
import org.apache.spark.network.buffer.FileSegmentManagedBuffer
import org.apache.spark.shuffle.FetchFailedException
import org.apache.spark.sql.sparkext.build_sides.OwnFiles
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.storage.{BlockId, BlockManagerId, ShuffleBlockFetcherIterator, ShuffleBlockId}

/** Provides the blocks of a task as segments of local files. Blocks of this executor are read where they are stored.
  * Blocks of other executors are fetched into one file, which is removed when the task ends.
  */
private[sparkext] class FetchedBlocks(task: TaskContext) {
  private val env = SparkEnv.get
  private val blocks = env.blockManager
  private val metrics = task.taskMetrics().createTempShuffleReadMetrics()

  /** The blocks of these ranges, as Spark's map output tracker locates them now: a map task that was rerun may have
    * sent other rows.
    */
  def locations(shuffle: Int, ranges: Seq[BucketRange]): BlockLocations = BlockLocations(
    ranges.flatMap { range =>
      env.mapOutputTracker.getMapSizesByExecutorId(
        shuffle,
        range.firstMap,
        range.lastMap,
        range.firstBucket,
        range.lastBucket)
    }.groupMap(_._1)(_._2).map { case (address, found) => address -> found.flatten }.toSeq)

  /** The local file segments of these blocks. If a block is lost, or damaged, Spark reruns its map task. */
  def segments(wanted: BlockLocations): Seq[JValue] = {
    val found = fetched(wanted)
    found.foreach(FetchedBlocks.remember(task, _))
    found.map(_.description)
  }

  /** The same for a shuffle that is not part of the job. The record of a failed fetch is cleared from the task: Spark
    * would act on the record whatever error the task raises.
    */
  def segmentsUnlessLost(shuffle: Int, ranges: Seq[BucketRange]): Seq[JValue] =
    try fetched(locations(shuffle, ranges)).map(_.description)
    catch {
      case failure: FetchFailedException =>
        task.asInstanceOf[TaskContextImpl].setFetchFailed(null)
        throw new SparkException(Reason("BUILD_ROWS_LOST", failure.getMessage), failure)
    }

  private def fetched(wanted: BlockLocations): Seq[FetchedSegment] = {
    val (own, others) = wanted.byAddress.partition { case (address, _) =>
      address.executorId == blocks.blockManagerId.executorId
    }
    val local = for ((address, found) <- own; (block, _, map) <- found) yield here(address, block, map)
    val all = local ++ fetched(others)
    task.taskMetrics().mergeShuffleReadMetrics()
    // Segments of one file are adjacent, so that it is mapped once.
    all.sortBy(segment => (segment.file.getPath, segment.start))
  }

  private def here(address: BlockManagerId, block: BlockId, map: Int): FetchedSegment =
    try blocks.getLocalBlockData(block) match {
        case segment: FileSegmentManagedBuffer =>
          metrics.incLocalBlocksFetched(1)
          metrics.incLocalBytesRead(segment.getLength)
          FetchedSegment(segment.getFile, segment.getOffset, segment.getLength, address, block, map)
        case other => throw new IllegalStateException(s"no segment of a file: $other")
      }
    catch {
      case failure: Exception => throw FetchedBlocks.failed(address, block, map, failure.toString, failure)
    }

  private def fetched(wanted: Seq[(BlockManagerId, Seq[BlockLocations.Block])]): Seq[FetchedSegment] =
    if (wanted.isEmpty) Nil
    else {
      val origins = wanted.flatMap { case (address, found) =>
        found.map { case (block, _, map) => block -> (address, map) }
      }.toMap
      val file = blocks.diskBlockManager.createTempLocalBlock()._2
      task.addTaskCompletionListener[Unit](_ => Files.deleteIfExists(file.toPath))
      val found = mutable.ArrayBuffer.empty[FetchedSegment]
      val out = new FileOutputStream(Files.createFile(file.toPath, OwnFiles.File).toFile)
      try {
        var start = 0L
        streams(wanted).foreach { case (block, stream) =>
          val size =
            try stream.transferTo(out)
            finally stream.close()
          val (address, map) = origins(block)
          found += FetchedSegment(file, start, size, address, block, map)
          start += size
        }
      } finally out.close()
      found.toSeq
    }

  private def streams(wanted: Seq[(BlockManagerId, Seq[BlockLocations.Block])]): Iterator[(BlockId, InputStream)] = {
    val conf = env.conf
    val fetcher = new ShuffleBlockFetcherIterator(
      task,
      blocks.blockStoreClient,
      blocks,
      env.mapOutputTracker,
      wanted.iterator,
      (_, stream) => stream,
      conf.get(REDUCER_MAX_SIZE_IN_FLIGHT) * 1024 * 1024,
      conf.get(REDUCER_MAX_REQS_IN_FLIGHT),
      conf.get(REDUCER_MAX_BLOCKS_IN_FLIGHT_PER_ADDRESS),
      conf.get(MAX_REMOTE_BLOCK_SIZE_FETCH_TO_MEM),
      conf.get(SHUFFLE_MAX_ATTEMPTS_ON_NETTY_OOM),
      detectCorrupt = false, // workers verify the checksums of blocks
      detectCorruptUseExtraMemory = false,
      checksumEnabled = false,
      checksumAlgorithm = conf.get(SHUFFLE_CHECKSUM_ALGORITHM),
      metrics,
      doBatchFetch = false
    )
    fetcher.toCompletionIterator
  }
}

/** The non-empty blocks of a shuffle by location. Each address occurs once, because Spark's fetcher would lose blocks
  * of a repeated address.
  */
private[sparkext] case class BlockLocations(byAddress: Seq[(BlockManagerId, Seq[BlockLocations.Block])]) {
  lazy val buckets: Set[Int] =
    byAddress.flatMap { case (_, found) => found.collect { case (ShuffleBlockId(_, _, bucket), _, _) => bucket } }.toSet

  def of(buckets: Set[Int]): BlockLocations = BlockLocations(byAddress.map { case (address, found) =>
    address -> found.filter { case (block: ShuffleBlockId, _, _) => buckets(block.reduceId); case _ => true }
  }.filter(_._2.nonEmpty))
}

private[sparkext] object BlockLocations {

  /** A block, its size, and the number of its map task. */
  type Block = (BlockId, Long, Int)
}

/** The local file segment of a block, and the block's origin. */
private case class FetchedSegment(
    file: File,
    start: Long,
    size: Long,
    address: BlockManagerId,
    block: BlockId,
    map: Int) {
  def description: JValue = JArray(List(JString(file.getPath), JLong(start), JLong(size)))
}

private[sparkext] object FetchedBlocks {

  /** The segments of each running task by file and start, for a worker that finds one damaged. */
  private val known = new ConcurrentHashMap[Long, mutable.Map[(String, Long), FetchedSegment]]()

  private def remember(task: TaskContext, segment: FetchedSegment): Unit = {
    val segments = known.computeIfAbsent(
      task.taskAttemptId(),
      attempt => {
        task.addTaskCompletionListener[Unit](_ => known.remove(attempt))
        mutable.Map.empty
      })
    segments((segment.file.getPath, segment.start)) = segment
  }

  /** The failure that makes Spark rerun the map task of the segment at `start` of a file; None if it is not a segment
    * of this task.
    */
  def failure(task: TaskContext, path: String, start: Long, message: String): Option[Throwable] =
    Option(known.get(task.taskAttemptId())).flatMap(_.get(path -> start)).map { segment =>
      failed(segment.address, segment.block, segment.map, message, null)
    }

  private def failed(address: BlockManagerId, block: BlockId, map: Int, message: String, cause: Throwable): Throwable =
    block match {
      case ShuffleBlockId(shuffle, mapId, bucket) =>
        new FetchFailedException(address, shuffle, mapId, map, bucket, message, cause)
      case other => new IllegalStateException(s"no block of a shuffle: $other: $message", cause)
    }
}
