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

/** Which task all rows of a key belong to, where the first join emits unmatched build rows: probe rows are shuffled into
  * `count` parts by their columns `keys`, and column `owner` of the build side tells the part of each of its rows.
  */
case class Parts(keys: Seq[Int], owner: Int, count: Int) {

  /** The rows, all of a key in one part, with a column in front: it is null but in one row more, which has the part's number. */
  def shuffled(probe: SparkPlan): RDD[InternalRow] = {
    val context = probe.session.sparkContext
    val by = keys.map(key => BoundReference(key, probe.output(key).dataType, nullable = true))
    val shuffle = ShuffleExchangeExec.prepareShuffleDependency(
      probe.execute(),
      probe.output,
      Parts.by(by, count),
      new UnsafeRowSerializer(probe.output.length),
      SQLShuffleWriteMetricsReporter.createShuffleWriteMetrics(context))
    val rows = new ShuffledRowRDD(shuffle, SQLShuffleReadMetricsReporter.createShuffleReadMetrics(context))
    val width = probe.output.length
    rows.mapPartitionsWithIndexInternal { (part, rows) =>
      val none = InternalRow(null)
      val joined = new JoinedRow()
      Iterator.single[InternalRow](new JoinedRow(InternalRow(part), new GenericInternalRow(width))) ++ rows.map(joined(none, _))
    }
  }
}

object Parts {

  /** Equal keys of the join are in one part: NaN is one value, and 0.0 is -0.0. */
  def by(keys: Seq[Expression], count: Int): HashPartitioning = HashPartitioning(
    keys.map { key =>
      key.dataType match {
        case FloatType | DoubleType => NormalizeNaNAndZero(key)
        case _ => key
      }
    },
    count)
}
