package org.apache.spark.sql.sparkext.shuffle

import org.apache.spark.util.AccumulatorV2

/** Numbers that tasks report for each bucket, summed over all tasks; empty if none was reported. A task that runs twice
  * counts twice. The sums are used for planning only, so results are correct even if the sums are not.
  */
class BucketTotals extends AccumulatorV2[Array[Long], Array[Long]] {
  private var totals: Array[Long] = Array.empty // empty until something is reported: it is sent with every task

  override def isZero: Boolean = totals.isEmpty
  override def copy(): BucketTotals = {
    val other = new BucketTotals
    other.totals = totals.clone()
    other
  }
  override def reset(): Unit = totals = Array.empty
  override def add(values: Array[Long]): Unit =
    if (totals.isEmpty) totals = values.clone()
    else values.indices.foreach(number => totals(number) += values(number))
  override def merge(other: AccumulatorV2[Array[Long], Array[Long]]): Unit = other match {
    case same: BucketTotals if !same.isZero => add(same.totals)
    case _ =>
  }
  override def value: Array[Long] = totals
}
