package org.apache.spark.sql.sparkext.arrow

import org.apache.arrow.vector.BaseFixedWidthVector

import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.Platform

/** Values with a width of `width` bytes. */
private abstract class FixedWidthCopy(vector: BaseFixedWidthVector, width: Int, nullable: Boolean)
    extends ColumnCopy(vector, nullable) {

  override protected def allocate(rows: Int): Unit = vector.allocateNew(rows)

  override protected final def values(column: ColumnVector, rows: Rows, at: Int, nulls: Boolean): Int = {
    val address = vector.getDataBuffer.memoryAddress + at.toLong * width
    if (rows.positions == null && ColumnCopy.isPlain(column)) whole(column, rows, address)
    else each(column, rows, address, nulls)
    rows.count
  }

  /** Copy an array as a whole. Its values at nulls do not matter. */
  protected def whole(column: ColumnVector, rows: Rows, address: Long): Unit

  /** Copy value by value. */
  protected def each(column: ColumnVector, rows: Rows, address: Long, nulls: Boolean): Unit

  protected final def put(array: AnyRef, offset: Int, rows: Rows, address: Long): Unit =
    Platform.copyMemory(array, offset, null, address, rows.count.toLong * width)
}

// These loops differ only in their accessor. A shared loop would call the accessor through a table for each value.

private final class ByteCopy(vector: BaseFixedWidthVector, nullable: Boolean)
    extends FixedWidthCopy(vector, 1, nullable) {
  override protected def whole(column: ColumnVector, rows: Rows, address: Long): Unit =
    put(column.getBytes(rows.from, rows.count), Platform.BYTE_ARRAY_OFFSET, rows, address)

  override protected def each(column: ColumnVector, rows: Rows, address: Long, nulls: Boolean): Unit = {
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if (!nulls || !column.isNullAt(row)) Platform.putByte(null, address + number, column.getByte(row))
      number += 1
    }
  }
}

private final class ShortCopy(vector: BaseFixedWidthVector, nullable: Boolean)
    extends FixedWidthCopy(vector, 2, nullable) {
  override protected def whole(column: ColumnVector, rows: Rows, address: Long): Unit =
    put(column.getShorts(rows.from, rows.count), Platform.SHORT_ARRAY_OFFSET, rows, address)

  override protected def each(column: ColumnVector, rows: Rows, address: Long, nulls: Boolean): Unit = {
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if (!nulls || !column.isNullAt(row)) Platform.putShort(null, address + number * 2L, column.getShort(row))
      number += 1
    }
  }
}

private final class IntCopy(vector: BaseFixedWidthVector, nullable: Boolean)
    extends FixedWidthCopy(vector, 4, nullable) {
  override protected def whole(column: ColumnVector, rows: Rows, address: Long): Unit =
    put(column.getInts(rows.from, rows.count), Platform.INT_ARRAY_OFFSET, rows, address)

  override protected def each(column: ColumnVector, rows: Rows, address: Long, nulls: Boolean): Unit = {
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if (!nulls || !column.isNullAt(row)) Platform.putInt(null, address + number * 4L, column.getInt(row))
      number += 1
    }
  }
}

private final class LongCopy(vector: BaseFixedWidthVector, nullable: Boolean)
    extends FixedWidthCopy(vector, 8, nullable) {
  override protected def whole(column: ColumnVector, rows: Rows, address: Long): Unit =
    put(column.getLongs(rows.from, rows.count), Platform.LONG_ARRAY_OFFSET, rows, address)

  override protected def each(column: ColumnVector, rows: Rows, address: Long, nulls: Boolean): Unit = {
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if (!nulls || !column.isNullAt(row)) Platform.putLong(null, address + number * 8L, column.getLong(row))
      number += 1
    }
  }
}

private final class FloatCopy(vector: BaseFixedWidthVector, nullable: Boolean)
    extends FixedWidthCopy(vector, 4, nullable) {
  override protected def whole(column: ColumnVector, rows: Rows, address: Long): Unit =
    put(column.getFloats(rows.from, rows.count), Platform.FLOAT_ARRAY_OFFSET, rows, address)

  override protected def each(column: ColumnVector, rows: Rows, address: Long, nulls: Boolean): Unit = {
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if (!nulls || !column.isNullAt(row)) Platform.putFloat(null, address + number * 4L, column.getFloat(row))
      number += 1
    }
  }
}

private final class DoubleCopy(vector: BaseFixedWidthVector, nullable: Boolean)
    extends FixedWidthCopy(vector, 8, nullable) {
  override protected def whole(column: ColumnVector, rows: Rows, address: Long): Unit =
    put(column.getDoubles(rows.from, rows.count), Platform.DOUBLE_ARRAY_OFFSET, rows, address)

  override protected def each(column: ColumnVector, rows: Rows, address: Long, nulls: Boolean): Unit = {
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if (!nulls || !column.isNullAt(row)) Platform.putDouble(null, address + number * 8L, column.getDouble(row))
      number += 1
    }
  }
}
