package org.apache.spark.sql.sparkext

import scala.util.matching.Regex

import org.apache.arrow.vector.DecimalVector

import org.apache.spark.SparkArithmeticException
import org.apache.spark.api.python.PythonException
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{Decimal, DecimalType, StructType}
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarArray, ColumnarBatch, ColumnarMap, ColumnVector}
import org.apache.spark.unsafe.types.UTF8String

/** What workers give back, batch by batch, as columns of the declared types.
  *
  * A batch lives until the next one is asked for. Where workers fail to read a file, or to compute a condition, the error is
  * the one that Spark itself gives.
  */
class PythonBatches(batches: Iterator[ColumnarBatch], declared: StructType) extends Iterator[ColumnarBatch] {
  override def hasNext: Boolean = translated(batches.hasNext)

  override def next(): ColumnarBatch = {
    val batch = translated(batches.next())
    // All columns of a row arrive as one struct.
    val row = batch.column(0).asInstanceOf[ArrowColumnVector]
    val columns = declared.indices.map(number => row.getChild(number))
    val types = columns.map(_.dataType)
    if (types != declared.map(_.dataType)) {
      throw new IllegalStateException(s"workers gave out $types, declared are ${declared.map(_.dataType)}")
    }
    new ColumnarBatch(columns.map(PythonBatches.quick).toArray, batch.numRows)
  }

  private def translated[T](step: => T): T =
    try step
    catch {
      case failure: PythonException => throw PythonBatches.sparks(failure)
    }
}

object PythonBatches {

  /** The message of Python's `FileReadError`. */
  private val Unreadable: Regex = """FileReadError: cannot read ['"](.*)['"]: (no such file)?""".r

  /** The message of Python's `ConditionError`. */
  private val Failed: Regex = """ConditionError: the condition of a join fails: (division by zero|overflow)""".r

  private def sparks(failure: PythonException): Throwable = {
    val message = failure.getMessage
    Unreadable.findFirstMatchIn(message).map { told =>
      val path = told.group(1)
      if (told.group(2) == null) QueryExecutionErrors.cannotReadFilesError(failure, path)
      else QueryExecutionErrors.fileNotExistError(path, failure)
    }.orElse(Failed.findFirstMatchIn(message).map { told =>
      if (told.group(1) == "overflow") QueryExecutionErrors.arithmeticOverflowError("overflow in the condition of a join")
      else divisionByZero
    }).getOrElse(failure)
  }

  /** Without the part of the query that it happened in, which workers do not know. */
  private def divisionByZero: Throwable =
    new SparkArithmeticException("DIVIDE_BY_ZERO", Map("config" -> s"\"${SQLConf.ANSI_ENABLED.key}\""), Array.empty, "")

  private def quick(column: ArrowColumnVector): ColumnVector = (column.dataType, column.getValueVector) match {
    case (decimal: DecimalType, vector: DecimalVector) if decimal.precision <= Decimal.MAX_LONG_DIGITS =>
      new ShortDecimals(column, vector, decimal)
    case _ => column
  }
}

/** Decimals of up to 18 digits: of the 16 bytes that Arrow has for each, the lower half says all, and no object is made of
  * the rest.
  */
private class ShortDecimals(column: ArrowColumnVector, vector: DecimalVector, decimal: DecimalType) extends ColumnVector(decimal) {
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
    if (isNullAt(row)) null
    else Decimal.createUnsafe(vector.getDataBuffer.getLong(row.toLong * DecimalVector.TYPE_WIDTH), precision, scale)

  override def close(): Unit = column.close()
  override def hasNull: Boolean = column.hasNull
  override def numNulls: Int = column.numNulls
  override def isNullAt(row: Int): Boolean = column.isNullAt(row)
  override def getBoolean(row: Int): Boolean = column.getBoolean(row)
  override def getByte(row: Int): Byte = column.getByte(row)
  override def getShort(row: Int): Short = column.getShort(row)
  override def getInt(row: Int): Int = column.getInt(row)
  override def getLong(row: Int): Long = column.getLong(row)
  override def getFloat(row: Int): Float = column.getFloat(row)
  override def getDouble(row: Int): Double = column.getDouble(row)
  override def getArray(row: Int): ColumnarArray = column.getArray(row)
  override def getMap(row: Int): ColumnarMap = column.getMap(row)
  override def getUTF8String(row: Int): UTF8String = column.getUTF8String(row)
  override def getBinary(row: Int): Array[Byte] = column.getBinary(row)
  override def getChild(ordinal: Int): ColumnVector = column.getChild(ordinal)
}
