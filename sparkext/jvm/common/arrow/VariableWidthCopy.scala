package org.apache.spark.sql.sparkext.arrow

import org.apache.arrow.vector.BaseVariableWidthVector

import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.Platform

/** Values of variable width, one after the other.
  *
  * A batch ends before its values take more than `mostBytes` bytes, or has one row: offsets have 32 bits, and rows may
  * be of any width.
  */
private abstract class VariableWidthCopy(vector: BaseVariableWidthVector, nullable: Boolean, mostBytes: Long)
    extends ColumnCopy(vector, nullable) {
  import VariableWidthCopy._

  override protected def allocate(rows: Int): Unit = vector.allocateNew(rows.toLong * FirstBytes, rows)

  override def finish(rows: Int): Unit = vector.setLastSet(rows - 1)

  /** The start of a row's value, which is the end of the value before it. */
  protected final def startOf(row: Int): Int = if (row == 0) 0 else Platform.getInt(null, offset(row))

  protected final def endRow(row: Int, end: Int): Unit = Platform.putInt(null, offset(row + 1), end)

  private def offset(row: Int): Long = vector.getOffsetBuffer.memoryAddress + row.toLong * Integer.BYTES

  /** Whether a value of `bytes` bytes belongs to this batch. If so, memory for it is allocated. */
  protected final def fits(row: Int, start: Int, bytes: Int): Boolean =
    if (row > 0 && start.toLong + bytes > mostBytes) false
    else {
      val needed = start.toLong + bytes
      val capacity = vector.getDataBuffer.capacity
      if (needed > capacity) vector.reallocDataBuffer(math.max(needed, math.min(2 * capacity, Integer.MAX_VALUE)))
      true
    }
}

private object VariableWidthCopy {
  private val FirstBytes = 16L
}

private final class TextCopy(vector: BaseVariableWidthVector, nullable: Boolean, mostBytes: Long)
    extends VariableWidthCopy(vector, nullable, mostBytes) {
  override protected def values(column: ColumnVector, rows: Rows, at: Int, nulls: Boolean): Int = {
    var end = startOf(at)
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if (!nulls || !column.isNullAt(row)) {
        val text = column.getUTF8String(row)
        if (!fits(at + number, end, text.numBytes)) return number
        text.writeToMemory(null, vector.getDataBuffer.memoryAddress + end)
        end += text.numBytes
      }
      endRow(at + number, end)
      number += 1
    }
    number
  }
}

private final class BinaryCopy(vector: BaseVariableWidthVector, nullable: Boolean, mostBytes: Long)
    extends VariableWidthCopy(vector, nullable, mostBytes) {
  override protected def values(column: ColumnVector, rows: Rows, at: Int, nulls: Boolean): Int = {
    var end = startOf(at)
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if (!nulls || !column.isNullAt(row)) {
        val bytes = column.getBinary(row)
        if (!fits(at + number, end, bytes.length)) return number
        Platform.copyMemory(
          bytes,
          Platform.BYTE_ARRAY_OFFSET,
          null,
          vector.getDataBuffer.memoryAddress + end,
          bytes.length)
        end += bytes.length
      }
      endRow(at + number, end)
      number += 1
    }
    number
  }
}
