package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{SpecializedGettersReader, UnsafeProjection}
import org.apache.spark.sql.types.{DataType, Decimal}
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarArray, ColumnarBatch, ColumnarMap, ColumnarRow}
import org.apache.spark.unsafe.types.{CalendarInterval, UTF8String, VariantVal}

/** A row of a batch as its columns, and the number of the current row. */
trait RowOfColumns extends InternalRow {
  protected def columns: Array[ColumnVector]
  protected var row = 0
}

/** A row of a batch, read from the batch's columns without a copy. It is valid until the next row is requested;
  * `copied` makes rows that stay valid.
  *
  * Spark's own class for such rows, `ColumnarBatchRow`, reads a null as a number if the value is requested by type, and
  * does not support all types.
  */
private[sparkext] final class RowInPlace(protected val columns: Array[ColumnVector], copied: UnsafeProjection)
    extends VersionedRow {
  def at(number: Int): RowInPlace = {
    row = number
    this
  }

  override def numFields: Int = columns.length
  override def isNullAt(column: Int): Boolean = columns(column).isNullAt(row)
  override def getBoolean(column: Int): Boolean = columns(column).getBoolean(row)
  override def getByte(column: Int): Byte = columns(column).getByte(row)
  override def getShort(column: Int): Short = columns(column).getShort(row)
  override def getInt(column: Int): Int = columns(column).getInt(row)
  override def getLong(column: Int): Long = columns(column).getLong(row)
  override def getFloat(column: Int): Float = columns(column).getFloat(row)
  override def getDouble(column: Int): Double = columns(column).getDouble(row)
  override def getDecimal(column: Int, precision: Int, scale: Int): Decimal =
    columns(column).getDecimal(row, precision, scale)
  override def getUTF8String(column: Int): UTF8String = columns(column).getUTF8String(row)
  override def getBinary(column: Int): Array[Byte] = columns(column).getBinary(row)
  override def getInterval(column: Int): CalendarInterval = columns(column).getInterval(row)
  override def getVariant(column: Int): VariantVal = columns(column).getVariant(row)
  override def getStruct(column: Int, fields: Int): ColumnarRow = columns(column).getStruct(row)
  override def getArray(column: Int): ColumnarArray = columns(column).getArray(row)
  override def getMap(column: Int): ColumnarMap = columns(column).getMap(row)
  override def get(column: Int, dataType: DataType): AnyRef =
    SpecializedGettersReader.read(this, column, dataType, true, true)

  override def copy(): InternalRow = copied(this).copy()
  override def setNullAt(column: Int): Unit = throw new UnsupportedOperationException("rows of a batch do not change")
  override def update(column: Int, value: Any): Unit =
    throw new UnsupportedOperationException("rows of a batch do not change")
}

/** Iterates over the rows of batches. All rows of a batch are the same object.
  *
  * Scala's own iterators would create an object for every row number. That would take as long as all other work of the
  * JVM for a row that nobody reads.
  */
private[sparkext] final class RowsOfBatches(batches: Iterator[ColumnarBatch], copied: UnsafeProjection)
    extends Iterator[InternalRow] {
  private var row: RowInPlace = _
  private var position = 0
  private var count = 0

  override def hasNext: Boolean = {
    while (position == count && batches.hasNext) {
      val batch = batches.next()
      row = new RowInPlace(Array.tabulate(batch.numCols)(batch.column), copied)
      position = 0
      count = batch.numRows
    }
    position < count
  }

  override def next(): InternalRow = {
    if (!hasNext) throw new NoSuchElementException("there are no more rows")
    position += 1
    row.at(position - 1)
  }
}
