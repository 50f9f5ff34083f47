package org.apache.spark.sql.sparkext

import org.json4s.JsonAST._
import org.json4s.JsonDSL._

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Conditions that workers evaluate, as Python's `plans/predicate.py` reads them: on joined pairs, and on rows of a scan.
  *
  * Covered is what has the same value there as here, and cannot fail: comparisons of columns and literals, lists, IS NULL,
  * tests of strings byte by byte, and the connectives.
  */
object WorkerCondition extends PredicateHelper {
  private val Deepest = 50

  /** The condition as JSON, or the part of it that is not covered. */
  def of(condition: Expression, place: Attribute => ColumnRef): Either[String, JValue] =
    if (depth(condition) > Deepest) Left("a condition nested too deeply") else covered(condition, place)

  /** How deep the JSON will be: connectives of one kind are one node, however they are nested. */
  private def depth(condition: Expression): Int = condition match {
    case _: And => 1 + splitConjunctivePredicates(condition).map(depth).max
    case _: Or => 1 + splitDisjunctivePredicates(condition).map(depth).max
    case Not(child) => 1 + depth(child)
    case _ => 1
  }

  private def covered(condition: Expression, place: Attribute => ColumnRef): Either[String, JValue] = condition match {
    case _: And => connective("and", splitConjunctivePredicates(condition), place)
    case _: Or => connective("or", splitDisjunctivePredicates(condition), place)
    case Not(child) => connective("not", Seq(child), place)
    case flag: Attribute if flag.dataType == BooleanType => comparison("=", flag, Literal.TrueLiteral, place)
    case IsNull(column: Attribute) => Right(test("is_null", Seq(operand(column, place).get)))
    case IsNotNull(column: Attribute) => covered(Not(IsNull(column)), place)
    case EqualTo(left, right) => comparison("=", left, right, place)
    case EqualNullSafe(left, right) => comparison("<=>", left, right, place)
    case LessThan(left, right) => comparison("<", left, right, place)
    case LessThanOrEqual(left, right) => comparison("<=", left, right, place)
    case GreaterThan(left, right) => comparison(">", left, right, place)
    case GreaterThanOrEqual(left, right) => comparison(">=", left, right, place)
    case In(column: Attribute, list) if list.forall(_.isInstanceOf[Literal]) => membership(column, list, place)
    case In(value, list) if list.nonEmpty => covered(list.map(EqualTo(value, _)).reduce[Expression](Or), place)
    case InSet(value, set) => covered(In(value, set.toSeq.map(Literal(_, value.dataType))), place)
    case StartsWith(column: Attribute, pattern: Literal) => stringTest("starts_with", column, pattern, place)
    case EndsWith(column: Attribute, pattern: Literal) => stringTest("ends_with", column, pattern, place)
    case Contains(column: Attribute, pattern: Literal) => stringTest("contains", column, pattern, place)
    case Like(column: Attribute, pattern: Literal, escape) if isPlainPattern(pattern, escape) =>
      stringTest("like", column, pattern, place)
    case other => Left(other.sql)
  }

  /** A value as text: dates are days and timestamps microseconds, as in Spark's memory. None for types that have no text. */
  def text(literal: Literal): Option[JValue] = literal match {
    case Literal(null, _) => Some(JNull)
    case Literal(value: UTF8String, _) if UTF8String.fromString(value.toString) == value => Some(JString(value.toString))
    case Literal(value: Decimal, _) => Some(JString(value.toJavaBigDecimal.toPlainString))
    case Literal(value @ (_: Byte | _: Short | _: Int | _: Long), _) => Some(JString(value.toString))
    case Literal(value: Boolean, _) => Some(JString(value.toString))
    case _ => None
  }

  private def membership(column: Attribute, list: Seq[Expression], place: Attribute => ColumnRef): Either[String, JValue] = {
    val (nulls, values) = list.collect { case literal: Literal => literal }.partition(_.value == null)
    val operands = (column +: values).flatMap(operand(_, place))
    if (values.isEmpty && nulls.nonEmpty) covered(EqualTo(column, nulls.head), place)
    else if (operands.length <= values.length || values.exists(_.dataType != column.dataType) || !isCovered(column.dataType, "=")) {
      Left(s"${column.sql} IN (...)")
    } else {
      val among = test("in", operands) ~ ("type" -> KeyTypes.name(column.dataType))
      if (nulls.isEmpty) Right(among)
      else covered(EqualTo(column, nulls.head), place).map(unknown => test("or", Seq(among, unknown)))
    }
  }

  private def stringTest(
      name: String,
      column: Attribute,
      pattern: Literal,
      place: Attribute => ColumnRef): Either[String, JValue] = {
    val operands = Seq(column, pattern).flatMap(operand(_, place))
    val covered = pattern.value != null && operands.length == 2 &&
      Seq(column, pattern).forall(side => KeyTypes.name(side.dataType).contains("string"))
    if (covered) Right(test(name, operands)) else Left(s"${column.sql} $name ${pattern.sql}")
  }

  /** Whether `%` is all that the pattern of a LIKE means by a character. */
  private def isPlainPattern(pattern: Literal, escape: Char): Boolean = pattern.value match {
    case text: UTF8String => !text.toString.exists(character => character == '_' || character == escape || character == '\\')
    case _ => false
  }

  private def connective(
      name: String,
      children: Seq[Expression],
      place: Attribute => ColumnRef): Either[String, JValue] = {
    val parts = children.map(covered(_, place))
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
    case Widened(column) =>
      val ref = place(column)
      Some(("source" -> ref.source) ~ ("column" -> ref.column))
    case literal: Literal => text(literal).map(value => JObject("literal" -> value))
    case _ => None
  }

  private def test(name: String, arguments: Seq[JValue]): JObject = ("op" -> name) ~ ("args" -> arguments)
}

/** A column, or an integer column in a wider type: workers compare and give out either. */
object Widened {
  def unapply(expression: Expression): Option[Attribute] = expression match {
    case column: Attribute => Some(column)
    case Cast(column: Attribute, wide: IntegralType, _, _)
        if column.dataType.isInstanceOf[IntegralType] && column.dataType.defaultSize <= wide.defaultSize =>
      Some(column)
    case _ => None
  }
}
