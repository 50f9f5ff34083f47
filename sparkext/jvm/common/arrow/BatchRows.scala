package org.apache.spark.sql.sparkext.arrow

import org.apache.spark.sql.sparkext.protocol.Shared

/** The number of rows of the next batch. The first one is small and later ones are larger, up to `most` rows, so that a
  * query with a LIMIT receives its rows early.
  */
final class BatchRows(most: Int) {
  import BatchRows._

  private var next = math.min(First, most)

  def count: Int = next

  /** Called after a batch was sent. */
  def grow(): Unit = next = math.min(next.toLong * Growth, most).toInt
}

object BatchRows {
  private val First = Shared[Int]("first_batch_rows")
  private val Growth = Shared[Int]("batch_growth")
}
