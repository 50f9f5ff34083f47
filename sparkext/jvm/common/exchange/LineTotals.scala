package org.apache.spark.sql.sparkext

import org.apache.spark.util.AccumulatorV2

/** Numbers that tasks tell of each line, added up over all tasks: none if there was none. A task that runs twice counts twice: these
  * are for plans, which are right however good they are.
  */
class LineTotals extends AccumulatorV2[Array[Long], Array[Long]] {
  private var totals: Array[Long] = Array.empty // as long as nothing was told: it is sent with every task

  override def isZero: Boolean = totals.isEmpty
  override def copy(): LineTotals = {
    val other = new LineTotals
    other.totals = totals.clone()
    other
  }
  override def reset(): Unit = totals = Array.empty
  override def add(told: Array[Long]): Unit =
    if (totals.isEmpty) totals = told.clone()
    else told.indices.foreach(number => totals(number) += told(number))
  override def merge(other: AccumulatorV2[Array[Long], Array[Long]]): Unit = other match {
    case same: LineTotals if !same.isZero => add(same.totals)
    case _ =>
  }
  override def value: Array[Long] = totals
}
