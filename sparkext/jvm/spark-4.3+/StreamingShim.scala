package org.apache.spark.sql.sparkext.shim

import org.apache.spark.{PartitionIdPassthrough, PipelinedShuffleDependency, SparkEnv}
import org.apache.spark.rdd.RDD
import org.apache.spark.serializer.Serializer
import org.apache.spark.shuffle.ShuffleManager
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.ShuffledRowRDD
import org.apache.spark.sql.execution.metric.SQLMetric

/** Shuffles between stages of a job that run at the same time. */
trait StreamingShim {
  def shuffleManager(env: SparkEnv): ShuffleManager = env.blockingShuffleManager

  def streams: Boolean = true

  def streamed(
      blocks: RDD[(Int, InternalRow)],
      partitions: Int,
      serializer: Serializer,
      metrics: Map[String, SQLMetric]): RDD[InternalRow] =
    new ShuffledRowRDD(
      new PipelinedShuffleDependency[Int, InternalRow, InternalRow](
        blocks,
        new PartitionIdPassthrough(partitions),
        serializer),
      metrics)
}
