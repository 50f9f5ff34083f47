package org.apache.spark.sql.sparkext

import org.apache.spark.unsafe.types.BinaryView

/** The row getter that exists from 4.2 on. */
trait RowOfBinaryViews extends RowOfColumns {
  override def getBinaryView(column: Int): BinaryView = columns(column).getBinaryView(row)
}
