package org.apache.spark.sql.sparkext

import org.json4s.JsonAST._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.{Partition, ShuffleDependency, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.unsafe.types.UTF8String

/** Lines of one side that a slot takes, from `firstLine` to before `lastLine`, of the maps from `firstMap` to before `lastMap`. */
case class LineRange(firstLine: Int, lastLine: Int, firstMap: Int, lastMap: Int)

/** What a slot takes: rows of the probe side to join, and of the build sides in turn, to join them with.
  *
  * Of the first build side, `copies` are another slot's as well, which emits those of them that nothing matches. It is one of the
  * slots that share the line. `marks` are the probe rows that the others join of such lines of this slot's own.
  */
case class SlotShare(
    probe: Seq[LineRange],
    builds: Seq[Seq[LineRange]],
    copies: Seq[LineRange] = Nil,
    marks: Seq[LineRange] = Nil)

/** One row a slot: the text that tells a worker where the rows of both sides lie, in files of this node. What other nodes have is
  * brought here first.
  *
  * `builds`: build sides with the numbers of the joins that they belong to. `needsProbe`, `needsBuild`: whether a line of which that
  * side has nothing comes to nothing, so that the other one stays where it is.
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
