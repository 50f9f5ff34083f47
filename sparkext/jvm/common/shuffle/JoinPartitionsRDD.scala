package org.apache.spark.sql.sparkext.shuffle

import org.json4s.JsonAST._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.{Partition, ShuffleDependency, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.unsafe.types.UTF8String

/** The buckets of one side that a partition reads, from `firstBucket` to before `lastBucket`, from the map tasks
  * `firstMap` to before `lastMap`.
  */
case class BucketRange(firstBucket: Int, lastBucket: Int, firstMap: Int, lastMap: Int)

/** The input of a partition: the rows of the probe side, and the rows of each build side with which they are joined.
  *
  * `copies`: rows of the first build side, in buckets that several partitions share, that another partition owns. Only
  * the owner emits those that nothing matches. `marks`: the probe rows that other partitions join with build rows that
  * this partition owns.
  */
case class PartitionShare(
    probe: Seq[BucketRange],
    builds: Seq[Seq[BucketRange]],
    copies: Seq[BucketRange] = Nil,
    marks: Seq[BucketRange] = Nil)

/** One row per partition: the text by which a worker finds the rows of both sides in files of this node. Blocks of
  * other nodes are fetched first.
  *
  * `builds`: build sides with the numbers of their joins. `needsProbe`, `needsBuild`: whether a bucket without rows of
  * that side has no result, so that the blocks of the other side need not be read.
  */
class JoinPartitionsRDD(
    context: SparkContext,
    @transient private val shares: Seq[PartitionShare],
    probe: ShuffleDependency[_, _, _],
    builds: Seq[(Int, ShuffleDependency[_, _, _])],
    needsProbe: Boolean,
    needsBuild: Boolean)
    extends RDD[InternalRow](context, probe +: builds.map(_._2)) {

  private val ofProbe = probe.shuffleId
  private val ofBuilds = builds.map { case (number, side) => number.toString -> side.shuffleId }

  override protected def getPartitions: Array[Partition] =
    shares.zipWithIndex.map { case (share, number) => new JoinPartition(number, share) }.toArray

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] = {
    val share = split.asInstanceOf[JoinPartition].share
    val fetched = new FetchedBlocks(task)
    val probe = fetched.locations(ofProbe, share.probe)
    val builds = ofBuilds.zip(share.builds).map { case ((_, side), ranges) => fetched.locations(side, ranges) }
    def met(side: BlockLocations, needed: Boolean, others: => Seq[BlockLocations]) =
      JArray(fetched.segments(if (needed) side.of(others.flatMap(_.buckets).toSet) else side).toList)
    def all(shuffle: Int, ranges: Seq[BucketRange]) =
      JArray(fetched.segments(fetched.locations(shuffle, ranges)).toList)
    val contents = JObject(
      "probe" -> met(probe, needsBuild, builds),
      "marks" -> all(ofProbe, share.marks),
      "builds" -> JObject(ofBuilds.zip(builds).map { case ((number, _), build) =>
        number -> met(build, needsProbe, Seq(probe))
      }.toList),
      "copies" -> all(ofBuilds.head._2, share.copies)
    )
    Iterator.single(InternalRow(UTF8String.fromString(compact(render(contents)))))
  }
}

private class JoinPartition(override val index: Int, val share: PartitionShare) extends Partition
