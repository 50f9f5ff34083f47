package org.apache.spark.sql.sparkext

import org.json4s.JsonAST._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.{Partition, ShuffleDependency, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.unsafe.types.UTF8String

/** The buckets of one side that a partition reads, from `firstLine` to before `lastLine`, from the map tasks `firstMap`
  * to before `lastMap`.
  */
case class LineRange(firstLine: Int, lastLine: Int, firstMap: Int, lastMap: Int)

/** The input of a partition: the rows of the probe side, and the rows of each build side with which they are joined.
  *
  * `copies`: rows of the first build side, in buckets that several partitions share, that another partition owns. Only
  * the owner emits those that nothing matches. `marks`: the probe rows that other partitions join with build rows that
  * this partition owns.
  */
case class SlotShare(
    probe: Seq[LineRange],
    builds: Seq[Seq[LineRange]],
    copies: Seq[LineRange] = Nil,
    marks: Seq[LineRange] = Nil)

/** One row per partition: the text by which a worker finds the rows of both sides in files of this node. Blocks of
  * other nodes are fetched first.
  *
  * `builds`: build sides with the numbers of their joins. `needsProbe`, `needsBuild`: whether a bucket without rows of
  * that side has no result, so that the blocks of the other side need not be read.
  */
class SlotsRDD(
    context: SparkContext,
    @transient private val slots: Seq[SlotShare],
    probe: ShuffleDependency[_, _, _],
    builds: Seq[(Int, ShuffleDependency[_, _, _])],
    needsProbe: Boolean,
    needsBuild: Boolean)
    extends RDD[InternalRow](context, probe +: builds.map(_._2)) {

  private val ofProbe = probe.shuffleId
  private val ofBuilds = builds.map { case (number, side) => number.toString -> side.shuffleId }

  override protected def getPartitions: Array[Partition] =
    slots.zipWithIndex.map { case (share, number) => new Slot(number, share) }.toArray

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val share = split.asInstanceOf[Slot].share
    val brought = new BroughtBlocks(task)
    val probe = brought.lying(ofProbe, share.probe)
    val builds = ofBuilds.zip(share.builds).map { case ((_, side), ranges) => brought.lying(side, ranges) }
    def met(side: LyingBlocks, needed: Boolean, others: => Seq[LyingBlocks]) =
      JArray(brought.segments(if (needed) side.of(others.flatMap(_.lines).toSet) else side).toList)
    def all(shuffle: Int, ranges: Seq[LineRange]) = JArray(brought.segments(brought.lying(shuffle, ranges)).toList)
    val told = JObject(
      "probe" -> met(probe, needsBuild, builds),
      "marks" -> all(ofProbe, share.marks),
      "builds" -> JObject(ofBuilds.zip(builds).map { case ((number, _), build) => number -> met(build, needsProbe, Seq(probe)) }.toList),
      "copies" -> all(ofBuilds.head._2, share.copies))
    Iterator.single(InternalRow(UTF8String.fromString(compact(render(told)))))
  }
}

private class Slot(override val index: Int, val share: SlotShare) extends Partition
