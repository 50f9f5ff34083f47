package org.apache.spark.sql.sparkext.shuffle

import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.mutable

import org.json4s.JsonAST._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.{Dependency, Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.{DeterministicLevel, RDD}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.execution.UnsafeRowSerializer
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLShuffleReadMetricsReporter}
import org.apache.spark.sql.sparkext.shim.SparkShim
import org.apache.spark.sql.types.{BinaryType, DataType, IntegerType}
import org.apache.spark.sql.vectorized.ColumnarBatch

/** The input of a join's partitions while the probe side is still being sent: blocks of the probe side, and the locations
  * of build rows. The locations precede the first block that needs them. The locations for all buckets whose home is the
  * partition are sent when the partition starts, the locations for other buckets when their first block is received.
  *
  * `builds`: join numbers with the sent build sides. Their shuffles are not part of this lineage, because Spark runs no
  * job with both streamed and ordinary shuffles: if their blocks are lost, the query fails. The shuffles live as long
  * as `builds`.
  */
class StreamedPartitionsRDD(
    context: SparkContext,
    @transient private val blocks: () => RDD[InternalRow],
    partitionCount: Int,
    buckets: Int,
    run: String,
    @transient private val builds: Seq[(Int, Sent)])
    extends RDD[InternalRow](context, Nil) {

  private val sides = builds.map { case (number, sent) =>
    StreamedSide(number.toString, sent.dependency.shuffleId, sent.maps)
  }

  /** Each run may assign rows to other partitions. */
  override protected def getOutputDeterministicLevel: DeterministicLevel.Value = DeterministicLevel.INDETERMINATE

  override protected def getDependencies: Seq[Dependency[_]] =
    Seq(new FreshBlocks(blocks, () => LoadTables.begin(sparkContext, run)))

  override protected def getPartitions: Array[Partition] = firstParent[InternalRow].partitions

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    LoadTableLink.ofPartition(run, task)
    new ReceivedBlocks(
      firstParent[InternalRow].iterator(split, task),
      split.index,
      partitionCount,
      buckets,
      sides,
      new FetchedBlocks(task))
  }
}

private case class StreamedSide(number: String, shuffle: Int, maps: Int)

private class ReceivedBlocks(
    blocks: Iterator[InternalRow],
    partition: Int,
    partitions: Int,
    buckets: Int,
    sides: Seq[StreamedSide],
    fetched: FetchedBlocks)
    extends Iterator[InternalRow] {
  private val Home = -1 // Python's `HOME`
  private val known = mutable.Set.empty[Int]
  private var block: InternalRow = _
  private var begun = false

  override def hasNext: Boolean = !begun || block != null || blocks.hasNext

  override def next(): InternalRow =
    if (!begun) {
      begun = true
      places(Home, (partition until buckets by partitions).map(bucket => (bucket, bucket + 1)))
    } else {
      if (block == null) block = blocks.next()
      val bucket = block.getInt(0)
      if (bucket % partitions != partition && known.add(bucket)) places(bucket, Seq(bucket -> (bucket + 1)))
      else {
        val content = block.getBinary(1)
        block = null
        InternalRow(bucket, false, content)
      }
    }

  /** The locations of the build rows of these buckets, as a text like that of [[JoinPartitionsRDD]]. */
  private def places(bucket: Int, wanted: Seq[(Int, Int)]): InternalRow = {
    val found = sides.map { side =>
      val ranges =
        if (side.maps == 0) Nil else wanted.map { case (first, last) => BucketRange(first, last, 0, side.maps) }
      side.number -> JArray(fetched.segmentsUnlessLost(side.shuffle, ranges).toList)
    }
    val nothing = JArray(Nil)
    val contents =
      JObject("probe" -> nothing, "marks" -> nothing, "copies" -> nothing, "builds" -> JObject(found.toList))
    InternalRow(bucket, true, compact(render(contents)).getBytes(UTF_8))
  }
}

object StreamedPartitionsRDD {

  /** `routed`: blocks with their target partitions, see [[Streamed.Routed]]. */
  def of(
      routed: RDD[ColumnarBatch],
      partitions: Int,
      buckets: Int,
      run: String,
      builds: Seq[(Int, Sent)]): RDD[InternalRow] = {
    val context = routed.sparkContext
    val blocks = routed.mapPartitionsInternal { batches =>
      LoadTableLink.awaitPartitions(run, partitions)
      val row = UnsafeProjection.create(Array[DataType](IntegerType, BinaryType))
      batches.flatMap { batch =>
        val Seq(partition, bucket, block) = (0 until batch.numCols).map(batch.column)
        (0 until batch.numRows).iterator.map(number =>
          (partition.getInt(number), row(InternalRow(bucket.getInt(number), block.getBinary(number))): InternalRow))
      }
    }
    val metrics: Map[String, SQLMetric] = SQLShuffleReadMetricsReporter.createShuffleReadMetrics(context)
    val fresh = () => SparkShim.streamed(blocks, partitions, new UnsafeRowSerializer(2), metrics)
    // Spark's reader divides by the number of writers, which must not be zero.
    if (routed.getNumPartitions == 0) context.emptyRDD
    else new StreamedPartitionsRDD(context, fresh, partitions, buckets, run, builds)
  }
}
