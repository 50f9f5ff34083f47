package org.apache.spark.sql.sparkext

/** How many rows the next batch is to have: the first one is small and later ones are larger, up to `most` rows, so that a query
  * with a LIMIT sees its rows early.
  */
final class BatchRows(most: Int) {
  import BatchRows._

  private var next = math.min(First, most)

  def count: Int = next

  /** A batch has been sent. */
  def grow(): Unit = next = math.min(next.toLong * Growth, most).toInt
}

object BatchRows {
  import Shared.formats

  private val First = Shared("first_batch_rows").extract[Int]
  private val Growth = Shared("batch_growth").extract[Int]
}
