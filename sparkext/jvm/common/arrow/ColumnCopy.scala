package org.apache.spark.sql.sparkext.arrow

import org.apache.arrow.vector.{BaseFixedWidthVector, BaseVariableWidthVector, BitVector, DecimalVector, FieldVector}

import org.apache.spark.sql.execution.vectorized.WritableColumnVector
import org.apache.spark.sql.sparkext.python.PythonBatches
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector}
import org.apache.spark.unsafe.Platform

/** Rows `from` until `until` of a columnar batch. With `positions`, the bounds are offsets in `positions`, which has
  * the row numbers.
  */
final class Rows(val positions: Array[Int], val from: Int, val until: Int) {
  def count: Int = until - from
  def apply(number: Int): Int = if (positions == null) from + number else positions(from + number)
  def take(number: Int): Rows = new Rows(positions, from, from + number)
}

/** Copies one of Spark's columns, batch by batch, to an Arrow vector.
  *
  * Spark's own conversion writes a row of all columns and splits it again. Here an array is copied as a whole if Spark
  * stores the values in one. Otherwise (dictionaries, ORC, a selection of rows) values are copied in a loop for each
  * type.
  */
abstract class ColumnCopy(vector: FieldVector, nullable: Boolean) {

  /** Allocate memory for `rows` rows. Rows that have been copied before are lost. */
  def reserve(rows: Int): Unit = if (vector.getValueCapacity < rows) {
    vector.clear()
    allocate(rows)
  }

  /** Copy rows to position `at`, and return how many of them fitted. */
  final def copy(source: ColumnVector, rows: Rows, at: Int): Int = {
    val column = ColumnCopy.readable(source)
    val nulls = nullable && column.hasNull
    markValid(at, rows.count)
    if (nulls) markNulls(column, rows, at)
    values(column, rows, at, nulls)
  }

  /** Called after the last copy of a batch, with its number of rows. */
  def finish(rows: Int): Unit = ()

  protected def allocate(rows: Int): Unit

  /** Copy all values but nulls. */
  protected def values(column: ColumnVector, rows: Rows, at: Int, nulls: Boolean): Int

  private def markValid(at: Int, count: Int): Unit =
    ColumnCopy.setBits(vector.getValidityBuffer.memoryAddress, at, count)

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

  /** The copier from columns of the type to the vector, if there is one. In a batch of several rows, each column of
    * variable width takes at most `mostBytes` bytes.
    */
  def of(dataType: DataType, vector: FieldVector, nullable: Boolean, mostBytes: Long): Option[ColumnCopy] =
    (dataType, vector) match {
      case (BooleanType, bits: BitVector) => Some(new BooleanCopy(bits, nullable))
      case (decimal: DecimalType, vector: DecimalVector) => Some(new DecimalCopy(vector, decimal, nullable))
      case (_: StringType, vector: BaseVariableWidthVector) => Some(new TextCopy(vector, nullable, mostBytes))
      case (BinaryType, vector: BaseVariableWidthVector) => Some(new BinaryCopy(vector, nullable, mostBytes))
      case (dataType, vector: BaseFixedWidthVector) =>
        dataType match {
          case ByteType => Some(new ByteCopy(vector, nullable))
          case ShortType => Some(new ShortCopy(vector, nullable))
          case IntegerType | DateType => Some(new IntCopy(vector, nullable))
          case LongType | TimestampType | TimestampNTZType | _: DayTimeIntervalType =>
            Some(new LongCopy(vector, nullable))
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

  /** Set bits `at` until `at + count`, and possibly some after them. */
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

  /** Whether the column stores its values in an array of their own type. */
  private[sparkext] def isPlain(column: ColumnVector): Boolean = column match {
    case writable: WritableColumnVector => !writable.hasDictionary
    case _ => false
  }

  private def readable(column: ColumnVector): ColumnVector = column match {
    case arrow: ArrowColumnVector => PythonBatches.quick(arrow)
    case other => other
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
