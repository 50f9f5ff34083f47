package org.apache.spark.sql.sparkext.exec

import org.apache.spark.{ShuffleDependency, SparkContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, BoundReference, Expression, GenericInternalRow, JoinedRow}
import org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero
import org.apache.spark.sql.catalyst.plans.physical.{HashPartitioning, Partitioning}
import org.apache.spark.sql.execution.{ShuffledRowRDD, SparkPlan, UnsafeRowSerializer}
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLShuffleReadMetricsReporter, SQLShuffleWriteMetricsReporter}
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
    val by = keys.map(key => BoundReference(key, probe.output(key).dataType, nullable = true))
    val rows = Parts.shuffled(probe.execute(), probe.output, Parts.by(by, count))
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

  /** Rows with these columns, shuffled to partitions by Spark. */
  def shuffled(rows: RDD[InternalRow], columns: Seq[Attribute], partitions: Partitioning): RDD[InternalRow] =
    shuffledBy(rows.sparkContext) { metrics =>
      ShuffleExchangeExec.prepareShuffleDependency(
        rows,
        columns,
        partitions,
        new UnsafeRowSerializer(columns.length),
        metrics)
    }

  /** The rows of a shuffle that is created with metrics of its writers. */
  def shuffledBy(context: SparkContext)(
      shuffle: Map[String, SQLMetric] => ShuffleDependency[Int, InternalRow, InternalRow]): RDD[InternalRow] =
    new ShuffledRowRDD(
      shuffle(SQLShuffleWriteMetricsReporter.createShuffleWriteMetrics(context)),
      SQLShuffleReadMetricsReporter.createShuffleReadMetrics(context))

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
