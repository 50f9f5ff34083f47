package org.apache.spark.sql.sparkext

import scala.util.control.NonFatal

import org.json4s.JsonAST.{JInt, JObject}

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, GenericInternalRow, Predicate}
import org.apache.spark.sql.types._

/** A condition that workers test by a formula, and where they find its columns: where it fails on a pair, they give the values,
  * and the error is the one that Spark makes of them.
  */
case class PairCondition(condition: Expression, columns: Seq[(Attribute, ColumnRef)]) {

  /** `values`: numbers by `source.column`, as Python's `theta_condition` writes them; what is null is left out. */
  def error(values: JObject): Throwable = {
    val numbers = values.obj.collect { case (place, JInt(number)) => place -> number.toLong }.toMap
    val row = columns.map { case (column, place) =>
      numbers.get(s"${place.source}.${place.column}").map(PairCondition.value(_, column.dataType)).orNull
    }
    try {
      val result = Predicate.create(condition, columns.map(_._1)).eval(new GenericInternalRow(row.toArray[Any]))
      new IllegalStateException(s"workers cannot evaluate a condition that Spark evaluates to $result: ${condition.sql}")
    } catch { case NonFatal(failure) => failure }
  }
}

private object PairCondition {

  /** The value that a machine word means: floats are their bits, decimals their unscaled digits. */
  private def value(word: Long, dataType: DataType): Any = dataType match {
    case BooleanType => word != 0
    case ByteType => word.toByte
    case ShortType => word.toShort
    case IntegerType | DateType => word.toInt
    case FloatType => java.lang.Float.intBitsToFloat(word.toInt)
    case DoubleType => java.lang.Double.longBitsToDouble(word)
    case DecimalType.Fixed(precision, scale) => Decimal(word, precision, scale)
    case _ => word
  }
}
