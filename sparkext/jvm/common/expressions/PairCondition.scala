package org.apache.spark.sql.sparkext.expressions

import scala.util.control.NonFatal

import org.json4s.JsonAST.{JInt, JObject, JString, JValue}

import org.apache.spark.sql.catalyst.expressions.{
  Attribute,
  AttributeSeq,
  BindReferences,
  Expression,
  GenericInternalRow,
  Literal
}
import org.apache.spark.sql.sparkext.joins.ColumnRef
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** An expression that workers compute, and the positions of its columns. If it fails on a row or a pair, workers report
  * the values, and the error is the one that Spark raises for them.
  */
case class PairCondition(condition: Expression, columns: Seq[(Attribute, ColumnRef)]) {

  /** The error that Spark raises for `values`. They are keyed by `source.column`, as Python's `theta_condition` and
    * `read_failing_values` write them, without nulls.
    */
  def error(values: JObject): Throwable = {
    val byName = values.obj.toMap
    val row = columns.map { case (column, place) =>
      byName.get(s"${place.source}.${place.column}").map(PairCondition.value(_, column.dataType)).orNull
    }
    try {
      val bound = BindReferences.bindReference(condition, AttributeSeq(columns.map(_._1)))
      val result = bound.eval(new GenericInternalRow(row.toArray[Any]))
      new IllegalStateException(Reason("CONDITION_NOT_EVALUATED", result, condition.sql))
    } catch { case NonFatal(failure) => failure }
  }
}

private[sparkext] object PairCondition {

  private val Hexadecimal = 16

  /** A reported value. Strings are reported as their bytes. For a type that workers only test for null, any value will
    * do.
    */
  private def value(json: JValue, dataType: DataType): Any = (json, dataType) match {
    case (JInt(digits), decimal: DecimalType) =>
      Decimal(BigDecimal(digits, decimal.scale), decimal.precision, decimal.scale)
    case (JInt(word), _) => ofWord(word.toLong, dataType)
    case (JString(digits), _: StringType) => UTF8String.fromBytes(bytes(digits))
    case (JString(digits), _) => bytes(digits)
    case _ => Literal.default(dataType).value
  }

  private def bytes(digits: String): Array[Byte] =
    digits.grouped(2).map(Integer.parseInt(_, Hexadecimal).toByte).toArray

  /** The value that a machine word encodes: floats are encoded as their bits. */
  private def ofWord(word: Long, dataType: DataType): Any = dataType match {
    case BooleanType => word != 0
    case ByteType => word.toByte
    case ShortType => word.toShort
    case IntegerType | DateType => word.toInt
    case FloatType => java.lang.Float.intBitsToFloat(word.toInt)
    case DoubleType => java.lang.Double.longBitsToDouble(word)
    case _ => word
  }
}
