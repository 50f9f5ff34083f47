package org.apache.spark.sql.sparkext

import org.json4s._

/** What a slot had to do, in seconds by the unit costs of Python's `line_costs`, for rows that came and for pairs of them; and the
  * seconds that it took.
  */
case class SlotRun(received: Double, met: Double, took: Double)

/** How the slots of a join ran. `each` has none where the foreman was not asked; `took`: by all of them. */
case class SlotRuns(each: Seq[SlotRun], took: Double)

object SlotRuns {
  import Shared.formats

  /** Put together of the loads that were planned, and the seconds of tasks that have ended, in their order; None if not all have. */
  def of(loads: JValue, seconds: Seq[Double]): Option[SlotRuns] = {
    val planned = (loads \ "after").extractOpt[List[Double]].getOrElse(Nil)
    val work = (loads \ "work").extractOpt[List[List[Double]]].getOrElse(Nil)
    val each = work.zip(seconds).collect { case (Seq(received, met), took) => SlotRun(received, met, took) }
    if (planned.length == seconds.length) Some(SlotRuns(each, seconds.sum)) else None
  }
}
