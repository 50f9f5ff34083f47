package org.apache.spark.sql.sparkext

import org.apache.spark.unsafe.types.TimestampNanosVal

/** The row getters that exist in this Spark version, but not in all supported ones. */
trait VersionedRow extends RowOfBinaryViews {
  override def getTimestampNTZNanos(column: Int): TimestampNanosVal = columns(column).getTimestampNTZNanos(row)
  override def getTimestampLTZNanos(column: Int): TimestampNanosVal = columns(column).getTimestampLTZNanos(row)
}
