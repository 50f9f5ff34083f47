package org.apache.spark.sql.sparkext.arrow

import org.apache.arrow.vector.DecimalVector

import org.apache.spark.sql.execution.vectorized.WritableColumnVector
import org.apache.spark.sql.types.{Decimal, DecimalType}
import org.apache.spark.sql.vectorized.ColumnVector
import org.apache.spark.unsafe.Platform

/** Arrow stores each decimal in 16 bytes, Spark in as many as the type needs. */
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

  /** Like Spark, writes null for a value that the type cannot hold. */
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
