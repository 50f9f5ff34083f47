package org.apache.spark.sql.sparkext

import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.unsafe.types.UTF8String

/** One row per partition: the text by which a worker finds the rows to read, and the preferred locations of that
  * partition.
  */
class SplitsRDD(context: SparkContext, @transient private val told: Seq[(String, Seq[String])])
    extends RDD[InternalRow](context, Nil) {

  override protected def getPartitions: Array[Partition] = told.zipWithIndex.map { case ((text, locations), number) =>
    new SplitsPartition(number, text, locations)
  }.toArray

  override protected def getPreferredLocations(split: Partition): Seq[String] =
    split.asInstanceOf[SplitsPartition].locations

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] =
    Iterator.single(InternalRow(UTF8String.fromString(split.asInstanceOf[SplitsPartition].text)))
}

private class SplitsPartition(override val index: Int, val text: String, @transient val locations: Seq[String])
    extends Partition
