package org.apache.spark.sql.sparkext

import org.json4s._
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

/** The plan of the load balancer (`foreman` in the code): the buckets (`lines`) and shares of buckets that each
  * partition (`slot`) joins, and the number of buckets that were moved, or split.
  *
  * `loads`: the loads of the partitions as JSON, as Python has reported them, for reports.
  */
case class Slots(shares: Seq[SlotShare], moved: Int, split: Int, loads: String)

object Slots {
  import Shared.formats

  private def cost(name: String): Double = (Shared("slots") \ name).extract[Double]
  private val Received = cost("received")
  private val Met = cost("compared") + cost("produced")
  private val PerBuildRow = cost("per_build_row")
  private val PerRowOfSeveral = cost("per_row_of_several")
  private val PerByte = cost("per_byte")
  private val PerCell = cost("per_cell")
  private val LeastSeconds = cost("least_seconds")
  private val SlotSeconds = cost("slot_seconds")
  private val BuildBytes = (Shared("slots") \ "build_bytes").extract[Long]

  /** A plan of one partition for all rows, if the load balancer would plan no more than one even if all rows of a
    * bucket matched. Calling the load balancer would then only cost time. See Python's `waves`. `paired`: build sides,
    * and whether a probe row is joined with every build row of its key, instead of only the first. `before`: how the
    * last such join ran.
    */
  def one(probe: Sent, paired: Seq[(Sent, Boolean)], before: Option[SlotRuns]): Option[Slots] = {
    val lines = probe.bytes.length
    val builds = paired.map(_._1)
    val sides = probe +: builds
    def rowsOf(side: Sent, line: Int) = side.rows.lift(line).getOrElse(0L)
    def secondsOf(line: Int) = {
      val received = rowsOf(probe, line) * (Received + PerRowOfSeveral) + builds.map(rowsOf(_, line)).sum * PerBuildRow
      val met = rowsOf(probe, line).toDouble * paired.map { case (side, all) => if (all) rowsOf(side, line) else 1L }.sum * Met
      received + met + sides.map(side => math.min(rowsOf(side, line), side.maps.toLong)).sum * PerCell
    }
    val seconds = (0 until lines).map(secondsOf).sum + sides.map(_.sizes.sum).sum * PerByte
    val small = seconds <= LeastSeconds && before.forall(_.took <= SlotSeconds) && builds.map(_.sizes.sum).sum <= BuildBytes
    val loads = compact(render(("before" -> Seq(seconds)) ~ ("after" -> Seq(seconds)) ~ ("moved" -> 0) ~ ("split" -> 0)))
    if (small) Some(Slots(Seq(SlotShare(everything(probe), builds.map(everything(_)))), 0, 0, loads)) else None
  }

  /** The plan that a worker has returned, see Python's `foreman_task`. `ownsBuild`: whether the first join emits the
    * unmatched rows of its build side.
    */
  def of(answer: String, probe: Sent, builds: Seq[Sent], ownsBuild: Boolean): Slots = {
    val planned = parse(answer)
    val slots = (planned \ "slots").extract[List[List[Share]]]
    val owners = (planned \ "owners").extract[Int]
    val shares = if (owners > 0) units(probe, builds.head, slots.flatten, owners) else slots.map { lines =>
      val (whole, parts) = lines.partition(_.count == 1)
      val (first, others) = parts.partition(_.number == 0)
      def joined(part: Share) = probe.part(part.line, part.number, part.count)
      def elsewhere(part: Share) = (1 until part.count).flatMap(probe.part(part.line, _, part.count))
      def all(build: Sent) = {
        val (undivided, divided) = lines.partition(_.builds == 1)
        ranges(undivided, build) ++ divided.flatMap(part => build.part(part.line, part.build, part.builds))
      }
      SlotShare(
        ranges(whole, probe) ++ parts.flatMap(joined),
        if (ownsBuild) ranges(whole ++ first, builds.head) +: builds.tail.map(all) else builds.map(all),
        if (ownsBuild) ranges(others, builds.head) else Nil,
        if (ownsBuild) first.flatMap(elsewhere) else Nil)
    }
    val loads = planned.removeField { case (name, _) => name == "slots" }
    Slots(shares, (planned \ "moved").extract[Int], (planned \ "split").extract[Int], compact(render(loads)))
  }

  /** Share `number` of `count` of a bucket's probe rows, with share `build` of `builds` of its build rows, like
    * Python's `Share`.
    */
  private case class Share(line: Int, number: Int, count: Int, build: Int, builds: Int)

  /** The units of a full outer join's matrix. Each joins its share of the probe side with all build rows, and owns none
    * of them. After them come the owners of the build rows, which receive the whole probe side to find their matches.
    */
  private def units(probe: Sent, build: Sent, parts: Seq[Share], owners: Int): Seq[SlotShare] =
    parts.map(part => SlotShare(probe.part(part.line, part.number, part.count), Seq(Nil), everything(build), Nil)) ++
      (0 until owners).map(number => SlotShare(Nil, Seq(build.part(0, number, owners)), Nil, everything(probe)))

  private def everything(side: Sent): Seq[LineRange] = some(Seq(LineRange(0, side.bytes.length, 0, side.maps)))

  /** All rows of a side in these buckets. Consecutive buckets are one range. */
  private def ranges(shares: Seq[Share], side: Sent): Seq[LineRange] =
    some(shares.map(_.line).distinct.sorted.foldLeft(List.empty[(Int, Int)]) {
      case ((first, last) :: before, line) if line == last => (first, line + 1) :: before
      case (before, line) => (line, line + 1) :: before
    }.reverse.map { case (first, last) => LineRange(first, last, 0, side.maps) })

  private def some(ranges: Seq[LineRange]): Seq[LineRange] = ranges.filter(range => range.firstMap < range.lastMap)
}
