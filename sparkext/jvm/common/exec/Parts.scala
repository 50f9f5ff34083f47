package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning
import org.apache.spark.sql.types.{DoubleType, FloatType}

/** Which task all rows of a key belong to, where the first join emits unmatched build rows: probe rows are shuffled into
  * `count` parts by their columns `keys`, and column `owner` of the build side tells the part of each of its rows.
  */
case class Parts(keys: Seq[Int], owner: Int, count: Int)

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
