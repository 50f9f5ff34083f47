package org.apache.spark.sql.sparkext

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{BoundReference, Expression, GenericInternalRow, JoinedRow}
import org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.execution.{ShuffledRowRDD, SparkPlan, UnsafeRowSerializer}
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.metric.{SQLShuffleReadMetricsReporter, SQLShuffleWriteMetricsReporter}
import org.apache.spark.sql.types.{DoubleType, FloatType}

/** Assigns all rows of a key to one task, for a first join that emits unmatched build rows. Probe rows are shuffled
  * into `count` partitions (`part` in the code) by their columns `keys`. Column `owner` of the build side holds the
  * partition number of each build row.
  */
case class Parts(keys: Seq[Int], owner: Int, count: Int) {

  /** The probe rows, all rows of a key in one partition, with an additional first column. It is null except in one
    * additional row per partition, which comes first and holds the partition's number.
    */
  def shuffled(probe: SparkPlan): RDD[InternalRow] = {
    val context = probe.session.sparkContext
    val by = keys.map(key => BoundReference(key, probe.output(key).dataType, nullable = true))
    val shuffle = ShuffleExchangeExec.prepareShuffleDependency(
      probe.execute(),
      probe.output,
      Parts.by(by, count),
      new UnsafeRowSerializer(probe.output.length),
      SQLShuffleWriteMetricsReporter.createShuffleWriteMetrics(context)
    )
    val rows = new ShuffledRowRDD(shuffle, SQLShuffleReadMetricsReporter.createShuffleReadMetrics(context))
    val width = probe.output.length
    rows.mapPartitionsWithIndexInternal { (part, rows) =>
      val none = InternalRow(null)
      val joined = new JoinedRow()
      Iterator.single[InternalRow](new JoinedRow(InternalRow(part), new GenericInternalRow(width))) ++ rows.map(joined(
        none,
        _))
    }
  }
}

object Parts {

  /** The partitioning that brings equal keys of the join together: NaN equals NaN, and 0.0 equals -0.0. */
  def by(keys: Seq[Expression], count: Int): HashPartitioning = HashPartitioning(
    keys.map { key =>
      key.dataType match {
        case FloatType | DoubleType => NormalizeNaNAndZero(key)
        case _ => key
      }
    },
    count)
}
