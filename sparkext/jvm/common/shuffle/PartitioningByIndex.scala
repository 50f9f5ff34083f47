package org.apache.spark.sql.sparkext.shuffle

import org.apache.spark.sql.catalyst.expressions.{Expression, Unevaluable}
import org.apache.spark.sql.catalyst.plans.physical.{ClusteredDistribution, Distribution, Partitioning, ShuffleSpec}
import org.apache.spark.sql.types.{DataType, IntegerType}

/** Rows with equal `keys` are in one partition, which is known only when the query runs. An operator over one input
  * needs no other shuffle, whereas an operator that needs two inputs partitioned alike does. `numPartitions`: the
  * largest number of partitions.
  */
case class PartitioningByIndex(keys: Seq[Expression], numPartitions: Int) extends Expression with Partitioning
    with Unevaluable {
  override def children: Seq[Expression] = keys
  override def nullable: Boolean = false
  override def dataType: DataType = IntegerType

  override def satisfies0(required: Distribution): Boolean = super.satisfies0(required) || (required match {
    case wanted: ClusteredDistribution if wanted.requiredNumPartitions.isEmpty =>
      if (wanted.requireAllClusterKeys) wanted.areAllClusterKeysMatched(keys)
      else keys.forall(key => wanted.clustering.exists(_.semanticEquals(key)))
    case _ => false
  })

  override def createShuffleSpec(distribution: ClusteredDistribution): ShuffleSpec = ByIndexSpec(numPartitions)

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): Expression =
    copy(keys = newChildren)
}

private case class ByIndexSpec(numPartitions: Int) extends ShuffleSpec {
  override def isCompatibleWith(other: ShuffleSpec): Boolean = false
  override def canCreatePartitioning: Boolean = false
}
