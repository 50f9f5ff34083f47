package org.apache.spark.sql.sparkext

import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.datasources.FilePartition
import org.apache.spark.unsafe.types.UTF8String

/** One row a partition: the text that tells a worker which splits to read. Tasks are placed as Spark's own scan places them. */
class SplitsRDD(context: SparkContext, @transient private val files: Seq[FilePartition], describe: FilePartition => String)
    extends RDD[InternalRow](context, Nil) {

  override protected def getPartitions: Array[Partition] = files.zipWithIndex.map { case (partition, number) =>
    new SplitsPartition(number, describe(partition), partition.preferredLocations().toSeq)
  }.toArray

  override protected def getPreferredLocations(split: Partition): Seq[String] = split.asInstanceOf[SplitsPartition].locations

  override def compute(split: Partition, task: TaskContext): Iterator[InternalRow] =
    Iterator.single(InternalRow(UTF8String.fromString(split.asInstanceOf[SplitsPartition].text)))
}

private class SplitsPartition(override val index: Int, val text: String, @transient val locations: Seq[String]) extends Partition
