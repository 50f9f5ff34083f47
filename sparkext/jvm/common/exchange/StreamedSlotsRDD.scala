package org.apache.spark.sql.sparkext

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
import org.apache.spark.sql.types.{BinaryType, DataType, IntegerType}
import org.apache.spark.sql.vectorized.ColumnarBatch

/** The input of a join's partitions while the probe side is still being sent: blocks (`cells` in the code) of the probe
  * side, and the locations of build rows. The locations precede the first block that needs them. The locations for all
  * buckets whose home is the partition are sent when the partition starts, the locations for other buckets when their
  * first block is received.
  *
  * `builds`: join numbers with the sent build sides. Their shuffles are not part of this lineage, because Spark runs no
  * job with both streamed and ordinary shuffles: if their blocks are lost, the query fails. The shuffles live as long
  * as `builds`.
  */
class StreamedSlotsRDD(
    context: SparkContext,
    @transient private val cells: () => RDD[InternalRow],
    slots: Int,
    lines: Int,
    run: String,
    @transient private val builds: Seq[(Int, Sent)])
    extends RDD[InternalRow](context, Nil) {

  private val sides = builds.map { case (number, sent) => StreamedSide(number.toString, sent.dependency.shuffleId, sent.maps) }

  /** Each run may assign rows to other partitions. */
  override protected def getOutputDeterministicLevel: DeterministicLevel.Value = DeterministicLevel.INDETERMINATE

  override protected def getDependencies: Seq[Dependency[_]] = Seq(new FreshCells(cells, () => Boards.begin(sparkContext, run)))

  override protected def getPartitions: Array[Partition] = firstParent[InternalRow].partitions

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    BoardLink.ofSlot(run, task)
    new ArrivingCells(firstParent[InternalRow].iterator(split, task), split.index, slots, lines, sides, new BroughtBlocks(task))
  }
}

private case class StreamedSide(number: String, shuffle: Int, maps: Int)

private class ArrivingCells(
    cells: Iterator[InternalRow],
    slot: Int,
    slots: Int,
    lines: Int,
    sides: Seq[StreamedSide],
    blocks: BroughtBlocks)
    extends Iterator[InternalRow] {
  private val Home = -1 // Python's `HOME`
  private val known = mutable.Set.empty[Int]
  private var cell: InternalRow = _
  private var begun = false

  override def hasNext: Boolean = !begun || cell != null || cells.hasNext

  override def next(): InternalRow =
    if (!begun) {
      begun = true
      places(Home, (slot until lines by slots).map(line => (line, line + 1)))
    } else {
      if (cell == null) cell = cells.next()
      val line = cell.getInt(0)
      if (line % slots != slot && known.add(line)) places(line, Seq(line -> (line + 1)))
      else {
        val content = cell.getBinary(1)
        cell = null
        InternalRow(line, false, content)
      }
    }

  /** The locations of the build rows of these buckets, as a text like that of [[SlotsRDD]]. */
  private def places(line: Int, wanted: Seq[(Int, Int)]): InternalRow = {
    val found = sides.map { side =>
      val ranges = if (side.maps == 0) Nil else wanted.map { case (first, last) => LineRange(first, last, 0, side.maps) }
      side.number -> JArray(blocks.segmentsUnlessLost(side.shuffle, ranges).toList)
    }
    val nothing = JArray(Nil)
    val told = JObject("probe" -> nothing, "marks" -> nothing, "copies" -> nothing, "builds" -> JObject(found.toList))
    InternalRow(line, true, compact(render(told)).getBytes(UTF_8))
  }
}

object StreamedSlotsRDD {

  /** `routed`: blocks with their target partitions, see [[Streamed.Routed]]. */
  def of(
      routed: RDD[ColumnarBatch],
      slots: Int,
      lines: Int,
      run: String,
      builds: Seq[(Int, Sent)]): RDD[InternalRow] = {
    val context = routed.sparkContext
    val cells = routed.mapPartitionsInternal { batches =>
      BoardLink.awaitSlots(run, slots)
      val row = UnsafeProjection.create(Array[DataType](IntegerType, BinaryType))
      batches.flatMap { batch =>
        val Seq(slot, line, cell) = (0 until batch.numCols).map(batch.column)
        (0 until batch.numRows).iterator.map(number => (slot.getInt(number), row(InternalRow(line.getInt(number), cell.getBinary(number))): InternalRow))
      }
    }
    val metrics: Map[String, SQLMetric] = SQLShuffleReadMetricsReporter.createShuffleReadMetrics(context)
    val fresh = () => SparkShim.streamed(cells, slots, new UnsafeRowSerializer(2), metrics)
    // Spark's reader divides by the number of writers, which must not be zero.
    if (routed.getNumPartitions == 0) context.emptyRDD else new StreamedSlotsRDD(context, fresh, slots, lines, run, builds)
  }
}
