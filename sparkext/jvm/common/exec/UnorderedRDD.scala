package org.apache.spark.sql.sparkext

import scala.reflect.ClassTag

import org.apache.spark.{Partition, TaskContext}
import org.apache.spark.rdd.{DeterministicLevel, RDD}

/** What a pipeline gives: the same elements whenever it is computed, but not in the same order, as sizes of outputs follow the
  * free memory. Where the order decides which task an element goes to, Spark then runs all tasks of a stage again, not only
  * those whose output was lost, unless it compares checksums of shuffled rows, its default from 4.2 on.
  */
class UnorderedRDD[T: ClassTag](ordered: RDD[T]) extends RDD[T](ordered) {
  override protected def getPartitions: Array[Partition] = firstParent[T].partitions

  override def compute(split: Partition, task: TaskContext): Iterator[T] = firstParent[T].iterator(split, task)

  override protected def getOutputDeterministicLevel: DeterministicLevel.Value = firstParent[T].outputDeterministicLevel match {
    case DeterministicLevel.DETERMINATE => DeterministicLevel.UNORDERED
    case other => other
  }
}
