package org.apache.spark.sql.sparkext.shuffle

import org.json4s._

import org.apache.spark.sql.sparkext.protocol.Shared

/** The work of a partition in seconds, by the unit costs of Python's `bucket_costs`, for received rows (`received`) and
  * for pairs of them (`met`); and the measured seconds (`took`).
  */
case class PartitionRun(received: Double, met: Double, took: Double)

/** How the partitions of a join ran. `each` is empty if the load balancer was not called; `took`: the seconds of all
  * partitions together.
  */
case class PartitionRuns(each: Seq[PartitionRun], took: Double)

object PartitionRuns {
  import Shared.formats

  /** Combines the planned loads and the seconds of finished tasks, in the order of partitions. None if not all tasks
    * have finished.
    */
  def of(loads: JValue, seconds: Seq[Double]): Option[PartitionRuns] = {
    val planned = (loads \ "after").extractOpt[List[Double]].getOrElse(Nil)
    val work = (loads \ "work").extractOpt[List[List[Double]]].getOrElse(Nil)
    val each = work.zip(seconds).collect { case (Seq(received, met), took) => PartitionRun(received, met, took) }
    if (planned.length == seconds.length) Some(PartitionRuns(each, seconds.sum)) else None
  }
}
