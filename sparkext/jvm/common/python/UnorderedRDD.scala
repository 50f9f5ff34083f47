package org.apache.spark.sql.sparkext.python

import scala.reflect.ClassTag

import org.apache.spark.{Partition, TaskContext}
import org.apache.spark.rdd.{DeterministicLevel, RDD}

/** The output of a pipeline. Each computation yields the same elements, but maybe in another order, because the sizes
  * of outputs depend on the free memory. If the order decides which task receives an element, Spark then reruns all
  * tasks of a stage, not only those whose output was lost, unless it compares checksums of shuffled rows (the default
  * from 4.2 on).
  */
class UnorderedRDD[T: ClassTag](ordered: RDD[T]) extends RDD[T](ordered) {
  override protected def getPartitions: Array[Partition] = firstParent[T].partitions

  override def compute(split: Partition, task: TaskContext): Iterator[T] = firstParent[T].iterator(split, task)

  override protected def getOutputDeterministicLevel: DeterministicLevel.Value =
    firstParent[T].outputDeterministicLevel match {
      case DeterministicLevel.DETERMINATE => DeterministicLevel.UNORDERED
      case other => other
    }
}
