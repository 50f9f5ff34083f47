package org.apache.spark.sql.sparkext

import org.apache.arrow.vector.{BaseFixedWidthVector, BaseVariableWidthVector, BitVector, DecimalVector, FieldVector}

import org.apache.spark.sql.execution.vectorized.WritableColumnVector
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector}
import org.apache.spark.unsafe.Platform

/** Rows `from` until `until` of a batch of columns; of those that `positions` names, if it does. */
final class Rows(val positions: Array[Int], val from: Int, val until: Int) {
  def count: Int = until - from
  def apply(number: Int): Int = if (positions == null) from + number else positions(from + number)
  def take(number: Int): Rows = new Rows(positions, from, from + number)
}

/** Copies one of Spark's columns, batch by batch, to one of Arrow's.
  *
  * Spark's own way writes a row of all columns and takes it apart again. Here arrays are copied as a whole where Spark keeps
  * plain ones, and values in a loop for each type where it does not: dictionaries, ORC, a selection of rows.
  */
abstract class ColumnCopy(vector: FieldVector, nullable: Boolean) {

  /** Make room for so many rows. What has been copied is gone. */
  def reserve(rows: Int): Unit = if (vector.getValueCapacity < rows) {
    vector.clear()
    allocate(rows)
  }

  /** Copy rows to the place `at`, and return how many of them there was room for. */
  final def copy(source: ColumnVector, rows: Rows, at: Int): Int = {
    val column = ColumnCopy.readable(source)
    val nulls = nullable && column.hasNull
    markValid(at, rows.count)
    if (nulls) markNulls(column, rows, at)
    values(column, rows, at, nulls)
  }

  /** All that has been copied is in `rows` rows. */
  def finish(rows: Int): Unit = ()

  protected def allocate(rows: Int): Unit

  /** Copy all values but nulls. */
  protected def values(column: ColumnVector, rows: Rows, at: Int, nulls: Boolean): Int

  private def markValid(at: Int, count: Int): Unit = ColumnCopy.setBits(vector.getValidityBuffer.memoryAddress, at, count)

  private def markNulls(column: ColumnVector, rows: Rows, at: Int): Unit = {
    val validity = vector.getValidityBuffer.memoryAddress
    var number = 0
    while (number < rows.count) {
      if (column.isNullAt(rows(number))) ColumnCopy.clearBit(validity, at + number)
      number += 1
    }
  }
}

object ColumnCopy {

  /** What copies a column of the type to the vector, if anything here does. Of a batch with values of any length, each such
    * column takes `mostBytes`.
    */
  def of(dataType: DataType, vector: FieldVector, nullable: Boolean, mostBytes: Long): Option[ColumnCopy] = (dataType, vector) match {
    case (BooleanType, bits: BitVector) => Some(new BooleanCopy(bits, nullable))
    case (decimal: DecimalType, vector: DecimalVector) => Some(new DecimalCopy(vector, decimal, nullable))
    case (_: StringType, vector: BaseVariableWidthVector) => Some(new TextCopy(vector, nullable, mostBytes))
    case (BinaryType, vector: BaseVariableWidthVector) => Some(new BinaryCopy(vector, nullable, mostBytes))
    case (dataType, vector: BaseFixedWidthVector) =>
      dataType match {
        case ByteType => Some(new ByteCopy(vector, nullable))
        case ShortType => Some(new ShortCopy(vector, nullable))
        case IntegerType | DateType => Some(new IntCopy(vector, nullable))
        case LongType | TimestampType | TimestampNTZType | _: DayTimeIntervalType => Some(new LongCopy(vector, nullable))
        case FloatType => Some(new FloatCopy(vector, nullable))
        case DoubleType => Some(new DoubleCopy(vector, nullable))
        case _ => None
      }
    case _ => None
  }

  /** Whether columns of the type are copied. */
  def copies(dataType: DataType): Boolean = dataType match {
    case BooleanType | ByteType | ShortType | IntegerType | LongType | FloatType | DoubleType => true
    case DateType | TimestampType | TimestampNTZType | BinaryType => true
    case _: StringType | _: DecimalType | _: DayTimeIntervalType => true
    case _ => false
  }

  /** Set bits `at` until `at + count`, and perhaps some behind them. */
  def setBits(address: Long, at: Int, count: Int): Unit = if (count > 0) {
    val first = address + (at >> 3)
    val last = address + ((at + count - 1) >> 3)
    Platform.putByte(null, first, (Platform.getByte(null, first) | (0xff << (at & 7))).toByte)
    if (last > first) Platform.setMemory(first + 1, 0xff.toByte, last - first)
  }

  private[sparkext] def clearBit(address: Long, bit: Int): Unit = {
    val byte = address + (bit >> 3)
    Platform.putByte(null, byte, (Platform.getByte(null, byte) & ~(1 << (bit & 7))).toByte)
  }

  /** Whether the column has its values in an array of their own type. */
  private[sparkext] def isPlain(column: ColumnVector): Boolean = column match {
    case writable: WritableColumnVector => !writable.hasDictionary
    case _ => false
  }

  private def readable(column: ColumnVector): ColumnVector = column match {
    case arrow: ArrowColumnVector => PythonBatches.quick(arrow)
    case other => other
  }
}

/** Values that take `width` bytes each. */
private abstract class FixedWidthCopy(vector: BaseFixedWidthVector, width: Int, nullable: Boolean)
    extends ColumnCopy(vector, nullable) {

  override protected def allocate(rows: Int): Unit = vector.allocateNew(rows)

  override protected final def values(column: ColumnVector, rows: Rows, at: Int, nulls: Boolean): Int = {
    val address = vector.getDataBuffer.memoryAddress + at.toLong * width
    if (rows.positions == null && ColumnCopy.isPlain(column)) whole(column, rows, address)
    else each(column, rows, address, nulls)
    rows.count
  }

  /** Copy an array. What it has where there is a null does not matter. */
  protected def whole(column: ColumnVector, rows: Rows, address: Long): Unit

  /** Copy value by value. */
  protected def each(column: ColumnVector, rows: Rows, address: Long, nulls: Boolean): Unit

  protected final def put(array: AnyRef, offset: Int, rows: Rows, address: Long): Unit =
    Platform.copyMemory(array, offset, null, address, rows.count.toLong * width)
}

// The loops of these are the same but for the accessor: one loop for all would call it through a table for each value.

private final class ByteCopy(vector: BaseFixedWidthVector, nullable: Boolean) extends FixedWidthCopy(vector, 1, nullable) {
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

private final class ShortCopy(vector: BaseFixedWidthVector, nullable: Boolean) extends FixedWidthCopy(vector, 2, nullable) {
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

private final class IntCopy(vector: BaseFixedWidthVector, nullable: Boolean) extends FixedWidthCopy(vector, 4, nullable) {
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

private final class LongCopy(vector: BaseFixedWidthVector, nullable: Boolean) extends FixedWidthCopy(vector, 8, nullable) {
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

private final class FloatCopy(vector: BaseFixedWidthVector, nullable: Boolean) extends FixedWidthCopy(vector, 4, nullable) {
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

private final class DoubleCopy(vector: BaseFixedWidthVector, nullable: Boolean) extends FixedWidthCopy(vector, 8, nullable) {
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

/** Arrow packs booleans into bits. */
private final class BooleanCopy(vector: BitVector, nullable: Boolean) extends ColumnCopy(vector, nullable) {
  override protected def allocate(rows: Int): Unit = vector.allocateNew(rows)

  override protected def values(column: ColumnVector, rows: Rows, at: Int, nulls: Boolean): Int = {
    val address = vector.getDataBuffer.memoryAddress
    ColumnCopy.setBits(address, at, rows.count)
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if ((!nulls || !column.isNullAt(row)) && !column.getBoolean(row)) ColumnCopy.clearBit(address, at + number)
      number += 1
    }
    rows.count
  }
}

/** Arrow has 16 bytes for each, of which Spark keeps as many as the type takes. */
private final class DecimalCopy(vector: DecimalVector, dataType: DecimalType, nullable: Boolean)
    extends ColumnCopy(vector, nullable) {
  private val Width = DecimalVector.TYPE_WIDTH
  private val precision = dataType.precision
  private val scale = dataType.scale

  override protected def allocate(rows: Int): Unit = vector.allocateNew(rows)

  override protected def values(column: ColumnVector, rows: Rows, at: Int, nulls: Boolean): Int = {
    val isNumber = column.isInstanceOf[WritableColumnVector] && column.dataType == dataType
    if (isNumber && precision <= Decimal.MAX_INT_DIGITS) ints(column, rows, at, nulls)
    else if (isNumber && precision <= Decimal.MAX_LONG_DIGITS) longs(column, rows, at, nulls)
    else objects(column, rows, at, nulls)
    rows.count
  }

  private def ints(column: ColumnVector, rows: Rows, at: Int, nulls: Boolean): Unit = {
    val address = vector.getDataBuffer.memoryAddress + at.toLong * Width
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if (!nulls || !column.isNullAt(row)) put(address + number.toLong * Width, column.getInt(row))
      number += 1
    }
  }

  private def longs(column: ColumnVector, rows: Rows, at: Int, nulls: Boolean): Unit = {
    val address = vector.getDataBuffer.memoryAddress + at.toLong * Width
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if (!nulls || !column.isNullAt(row)) put(address + number.toLong * Width, column.getLong(row))
      number += 1
    }
  }

  /** As Spark writes them: one that the type has no room for becomes null. */
  private def objects(column: ColumnVector, rows: Rows, at: Int, nulls: Boolean): Unit = {
    val address = vector.getDataBuffer.memoryAddress
    var number = 0
    while (number < rows.count) {
      val row = rows(number)
      if (!nulls || !column.isNullAt(row)) {
        val value = column.getDecimal(row, precision, scale)
        if (!value.changePrecision(precision, scale)) vector.setNull(at + number)
        else if (precision <= Decimal.MAX_LONG_DIGITS) put(address + (at + number).toLong * Width, value.toUnscaledLong)
        else vector.set(at + number, value.toJavaBigDecimal)
      }
      number += 1
    }
  }

  private def put(address: Long, unscaled: Long): Unit = {
    Platform.putLong(null, address, unscaled)
    Platform.putLong(null, address + java.lang.Long.BYTES, unscaled >> (java.lang.Long.SIZE - 1))
  }
}

/** Values of any length, one after the other.
  *
  * A batch ends before they take more than `mostBytes`, or has one row: offsets have 32 bits, and rows may be as wide as they
  * like.
  */
private abstract class VariableWidthCopy(vector: BaseVariableWidthVector, nullable: Boolean, mostBytes: Long)
    extends ColumnCopy(vector, nullable) {
  import VariableWidthCopy._

  override protected def allocate(rows: Int): Unit = vector.allocateNew(rows.toLong * FirstBytes, rows)

  override def finish(rows: Int): Unit = vector.setLastSet(rows - 1)

  /** Where the value of a row begins, which is where the one before it ends. */
  protected final def startOf(row: Int): Int = if (row == 0) 0 else Platform.getInt(null, offset(row))

  protected final def endRow(row: Int, end: Int): Unit = Platform.putInt(null, offset(row + 1), end)

  private def offset(row: Int): Long = vector.getOffsetBuffer.memoryAddress + row.toLong * Integer.BYTES

  /** Whether a value of so many bytes is to be in this batch; if so there is room for it. */
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
        Platform.copyMemory(bytes, Platform.BYTE_ARRAY_OFFSET, null, vector.getDataBuffer.memoryAddress + end, bytes.length)
        end += bytes.length
      }
      endRow(at + number, end)
      number += 1
    }
    number
  }
}
