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
object WorkerCondition {
  import Shared.formats

  private val Deepest = 50
  private val MostCompared = 200
  private val NotCovered = Shared("types_without_conditions").extract[Set[String]]
  private val Unordered = Shared("types_without_order").extract[Set[String]]

  /** The condition as JSON, or the part of it that is not covered. */
  def of(condition: Expression, place: Attribute => ColumnRef): Either[String, JValue] = covered(condition, place, Deepest)

  /** `levels`: how deep the JSON may still become. Connectives of one kind are one node, however they are nested. */
  private def covered(condition: Expression, place: Attribute => ColumnRef, levels: Int): Either[String, JValue] =
    if (levels == 0) Left("a condition nested too deeply")
    else condition match {
      case _: And => connective("and", Trees.conjuncts(condition), place, levels)
      case _: Or => connective("or", Trees.disjuncts(condition), place, levels)
      case Not(child) => connective("not", Seq(child), place, levels)
      case flag: Attribute if flag.dataType == BooleanType => comparison("=", flag, Literal.TrueLiteral, place)
      case IsNull(column: Attribute) => Right(test("is_null", Seq(operand(column, place).get)))
      case IsNotNull(column: Attribute) => covered(Not(IsNull(column)), place, levels)
      case Comparison(operator, left, right) => comparison(operator, left, right, place)
      case Listed(value, constants, others) => among(value, constants, others, place, levels)
      case StartsWith(column: Attribute, pattern: Literal) => stringTest("starts_with", column, pattern, place)
      case EndsWith(column: Attribute, pattern: Literal) => stringTest("ends_with", column, pattern, place)
      case Contains(column: Attribute, pattern: Literal) => stringTest("contains", column, pattern, place)
      case Like(column: Attribute, pattern: Literal, escape) if isPlainPattern(pattern, escape) =>
        stringTest("like", column, pattern, place)
      case other => Left(Wording.of(other))
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

  /** A list: one test for all its constants, however many, and a comparison with each that is none. */
  private def among(
      value: Expression,
      constants: Seq[Literal],
      others: Seq[Expression],
      place: Attribute => ColumnRef,
      levels: Int): Either[String, JValue] = {
    val (nulls, values) = constants.partition(_.value == null)
    val compared = nulls.take(1) ++ others
    if (compared.length > MostCompared) Left(s"a list of more than $MostCompared non-constant values")
    else if (values.isEmpty) connective("or", compared.map(EqualTo(value, _)), place, levels)
    else membership(value, values, place).flatMap { list =>
      if (compared.isEmpty) Right(list)
      else connective("or", compared.map(EqualTo(value, _)), place, levels).map(rest => test("or", Seq(list, rest)))
    }
  }

  private def membership(value: Expression, list: Seq[Literal], place: Attribute => ColumnRef): Either[String, JValue] = {
    val covered = Widened.unapply(value).isDefined && isCovered(value.dataType, "=") && list.forall(_.dataType == value.dataType)
    val texts = if (covered) list.flatMap(text) else Nil
    if (texts.length < list.length) Left(s"${Wording.of(value)} IN (...)")
    else Right(test("in", Seq(operand(value, place).get)) ~ ("type" -> KeyTypes.name(value.dataType)) ~ ("list" -> texts))
  }

  private def stringTest(
      name: String,
      column: Attribute,
      pattern: Literal,
      place: Attribute => ColumnRef): Either[String, JValue] = {
    val operands = Seq(column, pattern).flatMap(operand(_, place))
    val covered = pattern.value != null && operands.length == 2 &&
      Seq(column, pattern).forall(side => KeyTypes.name(side.dataType).contains("string"))
    if (covered) Right(test(name, operands)) else Left(s"${Wording.of(column)} $name ${Wording.of(pattern)}")
  }

  /** Whether `%` is all that the pattern of a LIKE means by a character. */
  private def isPlainPattern(pattern: Literal, escape: Char): Boolean = pattern.value match {
    case text: UTF8String => !text.toString.exists(character => character == '_' || character == escape || character == '\\')
    case _ => false
  }

  private def connective(
      name: String,
      children: Seq[Expression],
      place: Attribute => ColumnRef,
      levels: Int): Either[String, JValue] = {
    val parts = children.map(covered(_, place, levels - 1))
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
    else Left(s"${Wording.of(left)} $operator ${Wording.of(right)}")
  }

  private def isCovered(dataType: DataType, operator: String): Boolean = KeyTypes.family(dataType).exists { name =>
    !NotCovered(name) && (!Unordered(name) || operator == "=" || operator == "<=>")
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

/** A list, `value IN (…)`, which Spark makes a set of where it is long: its constants, and what else it compares with. */
private[sparkext] object Listed {
  def unapply(expression: Expression): Option[(Expression, Seq[Literal], Seq[Expression])] = expression match {
    case In(value, list) if list.nonEmpty =>
      val (constants, others) = list.partitionMap {
        case constant: Literal => scala.util.Left(constant)
        case other => scala.util.Right(other)
      }
      Some((value, constants, others))
    case InSet(value, set) if set.nonEmpty => Some((value, set.iterator.map(Literal(_, value.dataType)).toSeq, Nil))
    case _ => None
  }
}

/** A column, or an integer column in a wider type: workers compare and emit either. */
object Widened {
  def unapply(expression: Expression): Option[Attribute] = expression match {
    case column: Attribute => Some(column)
    case Cast(column: Attribute, wide: IntegralType, _, _)
        if column.dataType.isInstanceOf[IntegralType] && column.dataType.defaultSize <= wide.defaultSize =>
      Some(column)
    case _ => None
  }
}
