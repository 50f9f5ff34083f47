package org.apache.spark.sql.sparkext

import org.json4s.JsonAST._
import org.json4s.JsonDSL._

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Conditions beside a join's keys that workers evaluate, as Python's `plans/predicate.py` reads them.
  *
  * Covered is what has the same value there as here, and cannot fail: comparisons of columns and literals, IS NULL, and the
  * connectives.
  */
object ResidualCondition {

  /** The condition as JSON, or the part of it that is not covered. */
  def of(condition: Expression, place: Attribute => ColumnRef): Either[String, JValue] = condition match {
    case And(left, right) => connective("and", Seq(left, right), place)
    case Or(left, right) => connective("or", Seq(left, right), place)
    case Not(child) => connective("not", Seq(child), place)
    case IsNull(column: Attribute) => Right(test("is_null", Seq(operand(column, place).get)))
    case IsNotNull(column: Attribute) => of(Not(IsNull(column)), place)
    case EqualTo(left, right) => comparison("=", left, right, place)
    case EqualNullSafe(left, right) => comparison("<=>", left, right, place)
    case LessThan(left, right) => comparison("<", left, right, place)
    case LessThanOrEqual(left, right) => comparison("<=", left, right, place)
    case GreaterThan(left, right) => comparison(">", left, right, place)
    case GreaterThanOrEqual(left, right) => comparison(">=", left, right, place)
    case In(value, list) if list.nonEmpty => of(list.map(EqualTo(value, _)).reduce[Expression](Or), place)
    case InSet(value, set) if set.nonEmpty => of(In(value, set.toSeq.map(Literal(_, value.dataType))), place)
    case other => Left(other.sql)
  }

  private def connective(
      name: String,
      children: Seq[Expression],
      place: Attribute => ColumnRef): Either[String, JValue] = {
    val parts = children.map(of(_, place))
    parts.collectFirst { case Left(part) => part }.toLeft(test(name, parts.collect { case Right(part) => part }))
  }

  private def comparison(
      operator: String,
      left: Expression,
      right: Expression,
      place: Attribute => ColumnRef): Either[String, JValue] = {
    val operands = Seq(left, right).flatMap(operand(_, place))
    val covered = operands.length == 2 && left.dataType == right.dataType && isCovered(left.dataType, operator)
    if (covered) Right(test(operator, operands) ~ ("type" -> KeyTypes.name(left.dataType)))
    else Left(s"${left.sql} $operator ${right.sql}")
  }

  private def isCovered(dataType: DataType, operator: String): Boolean = dataType match {
    case FloatType | DoubleType => false // NaN is a value to Spark, and none to Arrow
    case BooleanType => operator == "=" || operator == "<=>"
    case other => KeyTypes.name(other).isDefined
  }

  private def operand(expression: Expression, place: Attribute => ColumnRef): Option[JObject] = expression match {
    case column: Attribute =>
      val ref = place(column)
      Some(("source" -> ref.source) ~ ("column" -> ref.column))
    case Literal(null, _) => Some(JObject("literal" -> JNull))
    case Literal(value: UTF8String, _) => Some("literal" -> value.toString)
    case Literal(value: Decimal, _) => Some("literal" -> value.toJavaBigDecimal.toPlainString)
    // Dates are days and timestamps microseconds, in text as in Spark's memory.
    case Literal(value @ (_: Byte | _: Short | _: Int | _: Long), _) => Some("literal" -> value.toString)
    case Literal(value: Boolean, _) => Some("literal" -> value.toString)
    case _ => None
  }

  private def test(name: String, arguments: Seq[JValue]): JObject = ("op" -> name) ~ ("args" -> arguments)
}
