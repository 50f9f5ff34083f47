package org.apache.spark.sql.sparkext.shuffle

import org.json4s._
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

import org.apache.spark.sql.sparkext.protocol.Shared

/** The plan of the load balancer: the buckets and shares of buckets that each partition joins, and the number of buckets
  * that were moved, or split.
  *
  * `loads`: the loads of the partitions as JSON, as Python has reported them, for reports.
  */
case class JoinPartitions(shares: Seq[PartitionShare], moved: Int, split: Int, loads: String)

object JoinPartitions {
  import Shared.formats

  private val cost = Shared[Map[String, Double]]("partitions")
  private val Received = cost("received")
  private val Met = cost("compared") + cost("produced")
  private val PerBuildRow = cost("per_build_row")
  private val PerRowOfSeveral = cost("per_row_of_several")
  private val PerByte = cost("per_byte")
  private val PerBlock = cost("per_block")
  private val LeastSeconds = cost("least_seconds")
  private val PartitionSeconds = cost("partition_seconds")
  private val BuildBytes = cost("build_bytes")

  /** A plan of one partition for all rows, if the load balancer would plan no more than one even if all rows of a
    * bucket matched. Calling the load balancer would then only cost time. See Python's `waves`. `paired`: build sides,
    * and whether a probe row is joined with every build row of its key, instead of only the first. `before`: how the
    * last such join ran.
    */
  def one(probe: Sent, paired: Seq[(Sent, Boolean)], before: Option[PartitionRuns]): Option[JoinPartitions] = {
    val buckets = probe.bytes.length
    val builds = paired.map(_._1)
    val sides = probe +: builds
    def rowsOf(side: Sent, bucket: Int) = side.rows.lift(bucket).getOrElse(0L)
    def secondsOf(bucket: Int) = {
      val received =
        rowsOf(probe, bucket) * (Received + PerRowOfSeveral) + builds.map(rowsOf(_, bucket)).sum * PerBuildRow
      val met = rowsOf(probe, bucket).toDouble * paired.map { case (side, all) =>
        if (all) rowsOf(side, bucket) else 1L
      }.sum * Met
      received + met + sides.map(side => math.min(rowsOf(side, bucket), side.maps.toLong)).sum * PerBlock
    }
    val seconds = (0 until buckets).map(secondsOf).sum + sides.map(_.sizes.sum).sum * PerByte
    val small =
      seconds <= LeastSeconds && before.forall(_.took <= PartitionSeconds) && builds.map(_.sizes.sum).sum <= BuildBytes
    val loads =
      compact(render(("before" -> Seq(seconds)) ~ ("after" -> Seq(seconds)) ~ ("moved" -> 0) ~ ("split" -> 0)))
    if (small) Some(JoinPartitions(Seq(PartitionShare(everything(probe), builds.map(everything(_)))), 0, 0, loads))
    else None
  }

  /** The plan that a worker has returned, see Python's `balance_task`. `ownsBuild`: whether the first join emits the
    * unmatched rows of its build side.
    */
  def of(answer: String, probe: Sent, builds: Seq[Sent], ownsBuild: Boolean): JoinPartitions = {
    val planned = parse(answer)
    val partitions = (planned \ "partitions").extract[List[List[Share]]]
    val owners = (planned \ "owners").extract[Int]
    val shares = if (owners > 0) units(probe, builds.head, partitions.flatten, owners)
    else partitions.map { buckets =>
      val (whole, parts) = buckets.partition(_.count == 1)
      val (first, others) = parts.partition(_.number == 0)
      def joined(part: Share) = probe.part(part.bucket, part.number, part.count)
      def elsewhere(part: Share) = (1 until part.count).flatMap(probe.part(part.bucket, _, part.count))
      def all(build: Sent) = {
        val (undivided, divided) = buckets.partition(_.builds == 1)
        ranges(undivided, build) ++ divided.flatMap(part => build.part(part.bucket, part.build, part.builds))
      }
      PartitionShare(
        ranges(whole, probe) ++ parts.flatMap(joined),
        if (ownsBuild) ranges(whole ++ first, builds.head) +: builds.tail.map(all) else builds.map(all),
        if (ownsBuild) ranges(others, builds.head) else Nil,
        if (ownsBuild) first.flatMap(elsewhere) else Nil
      )
    }
    val loads = planned.removeField { case (name, _) => name == "partitions" }
    JoinPartitions(shares, (planned \ "moved").extract[Int], (planned \ "split").extract[Int], compact(render(loads)))
  }

  /** Share `number` of `count` of a bucket's probe rows, with share `build` of `builds` of its build rows, like
    * Python's `Share`.
    */
  private case class Share(bucket: Int, number: Int, count: Int, build: Int, builds: Int)

  /** The units of a full outer join's matrix. Each joins its share of the probe side with all build rows, and owns none
    * of them. After them come the owners of the build rows, which receive the whole probe side to find their matches.
    */
  private def units(probe: Sent, build: Sent, parts: Seq[Share], owners: Int): Seq[PartitionShare] =
    parts.map(part =>
      PartitionShare(probe.part(part.bucket, part.number, part.count), Seq(Nil), everything(build), Nil)) ++
      (0 until owners).map(number => PartitionShare(Nil, Seq(build.part(0, number, owners)), Nil, everything(probe)))

  private def everything(side: Sent): Seq[BucketRange] = some(Seq(BucketRange(0, side.bytes.length, 0, side.maps)))

  /** All rows of a side in these buckets. Consecutive buckets are one range. */
  private def ranges(shares: Seq[Share], side: Sent): Seq[BucketRange] =
    some(shares.map(_.bucket).distinct.sorted.foldLeft(List.empty[(Int, Int)]) {
      case ((first, last) :: before, bucket) if bucket == last => (first, bucket + 1) :: before
      case (before, bucket) => (bucket, bucket + 1) :: before
    }.reverse.map { case (first, last) => BucketRange(first, last, 0, side.maps) })

  private def some(ranges: Seq[BucketRange]): Seq[BucketRange] = ranges.filter(range => range.firstMap < range.lastMap)
}
