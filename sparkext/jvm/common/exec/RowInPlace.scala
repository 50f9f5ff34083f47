package org.apache.spark.sql.sparkext.exec

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{JoinedRow, SpecializedGettersReader, UnsafeProjection}
import org.apache.spark.sql.types.DataType

/** A row of a batch, read from the batch's columns without a copy. It is valid until the next row is requested;
  * `copied` makes rows that stay valid.
  *
  * `withLeft` sets Spark's own row for the columns of a batch. That one reads a null as a number if the value is
  * requested by type, and neither returns nor copies values of all types.
  */
private[sparkext] final class RowInPlace(copied: UnsafeProjection) extends JoinedRow(null, InternalRow.empty) {
  override def get(column: Int, dataType: DataType): AnyRef =
    SpecializedGettersReader.read(this, column, dataType, true, true)

  override def copy(): JoinedRow = new JoinedRow(copied(this).copy(), InternalRow.empty)
}
