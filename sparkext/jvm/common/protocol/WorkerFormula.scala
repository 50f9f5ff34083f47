package org.apache.spark.sql.sparkext

import org.json4s.JsonAST._
import org.json4s.JsonDSL._

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.types._

/** Numeric conditions that workers compile, as Python's `plans/formula.py` reads them.
  *
  * Covered is what gives the same bits there as here: arithmetic of integers, floats and decimals of up to 18 digits, days
  * between dates, comparisons, null tests, the connectives, and choices. Functions whose last digit depends on the library,
  * such as sines and powers, are not.
  */
object WorkerFormula {
  import Shared.formats

  private val Largest = 200 // what takes some three seconds to compile
  private val DigitsOfDoubles = 15

  /** The condition as JSON, or the part of it that is not covered. */
  def of(condition: Expression, place: Attribute => ColumnRef): Either[String, JValue] =
    if (condition.dataType != BooleanType) Left(Wording.of(condition))
    else if (Trees.isLarger(condition, Largest)(computed)) Left("a formula too large to compile")
    else new Translation(place).covered(condition).filterOrElse(formula => nodes(formula) <= Largest, "a formula too large to compile")

  def covers(condition: Expression): Boolean = of(condition, _ => ColumnRef(0, 0)).isRight

  /** What is computed for an expression: the constants of a list are looked up, however many they are. */
  private def computed(expression: Expression): Seq[Expression] = expression match {
    case Listed(value, _, others) => value +: others
    case other => other.children
  }

  private def nodes(formula: JValue): Int = formula.fold(0) {
    case (count, _: JObject) => count + 1
    case (count, _) => count
  }

  private val Numbers = Shared("number_types").extract[Map[String, String]]
  private val MostDigits = Shared("most_digits").extract[Int]

  /** What values of a type become. */
  private def number(dataType: DataType): Option[String] = dataType match {
    case decimal: DecimalType if decimal.precision > MostDigits => None
    case other => KeyTypes.family(other).flatMap(Numbers.get)
  }

  private class Translation(place: Attribute => ColumnRef) {
    def covered(expression: Expression): Either[String, JValue] = number(expression.dataType).flatMap { kind =>
      node(expression, kind)
    }.getOrElse(Left(Wording.of(expression)))

    /** None for what is not covered itself, Left where a part of it is not. */
    private def node(expression: Expression, kind: String): Option[Either[String, JValue]] = expression match {
      case Widened(column) =>
        val ref = place(column)
        Some(Right(
          ("op" -> "column") ~ ("source" -> ref.source) ~ ("column" -> ref.column) ~
            ("key" -> KeyTypes.name(expression.dataType))))
      case literal: Literal => text(literal).map(value => Right(constant(value, kind)))
      case Cast(child, to, _, _) => cast(child, to)
      case add: Add => arithmetic("+", add, add.evalContext.evalMode, kind)
      case subtract: Subtract => arithmetic("-", subtract, subtract.evalContext.evalMode, kind)
      case multiply: Multiply => arithmetic("*", multiply, multiply.evalContext.evalMode, kind)
      case divide: Divide if kind == "float64" => divided("/", divide, divide.evalContext.evalMode, kind)
      case rest: Remainder if !rest.dataType.isInstanceOf[DecimalType] =>
        divided("%", rest, rest.evalContext.evalMode, kind)
      case UnaryMinus(child, failOnError) => signed("negate", child, failOnError, kind)
      case Abs(child, failOnError) => signed("abs", child, failOnError, kind)
      case UnaryPositive(child) => Some(covered(child))
      case Sqrt(child) => op("sqrt", kind, child)
      case DateDiff(end, start) => op("-", kind, end, start)
      case DateAdd(start, days) if days.dataType == IntegerType => op("+", kind, start, days)
      case DateSub(start, days) if days.dataType == IntegerType => op("-", kind, start, days)
      case UnixDate(date) => Some(covered(date))
      case Comparison(operator, left, right) => comparison(operator, left, right)
      case Listed(value, constants, others) => among(value, constants, others)
      case IsNull(child) => op("is_null", kind, child)
      case IsNotNull(child) => Some(covered(Not(IsNull(child))))
      case And(left, right) => op("and", kind, left, right)
      case Or(left, right) => op("or", kind, left, right)
      case Not(child) => op("not", kind, child)
      case If(condition, chosen, otherwise) => op("if", kind, condition, chosen, otherwise)
      case CaseWhen(branches, otherwise) =>
        val last = otherwise.getOrElse(Literal(null, expression.dataType))
        Some(covered(branches.foldRight(last) { case ((condition, value), next) => If(condition, value, next) }))
      case Coalesce(children) => op("coalesce", kind, children: _*)
      case Least(children) => op("least", kind, children: _*)
      case Greatest(children) => op("greatest", kind, children: _*)
      case _ => None
    }

    private def op(name: String, kind: String, args: Expression*): Option[Either[String, JValue]] =
      Some(parts(args).map(call(name, kind, _, checked = false)))

    private def comparison(name: String, left: Expression, right: Expression): Option[Either[String, JValue]] =
      if (left.dataType == right.dataType) op(name, "bool", left, right) else None

    /** One search in all constants of the list, and a comparison with each part that is none. */
    private def among(
        value: Expression,
        constants: Seq[Literal],
        others: Seq[Expression]): Option[Either[String, JValue]] = {
      val isNumber = number(value.dataType).isDefined && constants.forall(_.dataType == value.dataType)
      val texts = if (isNumber) constants.flatMap(text) else Nil
      if (texts.length < constants.length) None
      else Some(for {
        looked <- covered(value)
        compared <- parts(others.map(EqualTo(value, _)))
      } yield {
        val list = ("op" -> "in") ~ ("args" -> Seq(looked)) ~ ("type" -> "bool") ~ ("list" -> texts)
        if (constants.isEmpty) call("or", "bool", compared, checked = false)
        else if (compared.isEmpty) list
        else call("or", "bool", list +: compared, checked = false)
      })
    }

    /** Decimals are brought to the scale of the result first; they do not overflow, as Spark makes room for one digit more. */
    private def arithmetic(
        name: String,
        operation: BinaryArithmetic,
        mode: EvalMode.Value,
        kind: String): Option[Either[String, JValue]] = operation.dataType match {
      case DecimalType.Fixed(_, scale) if name != "*" =>
        Some(both(rescaled(operation.left, scale), rescaled(operation.right, scale)).map(call(name, kind, _, checked = false)))
      case DecimalType.Fixed(_, scale) if operation.children.map(scaleOf).sum == scale => op(name, kind, operation.children: _*)
      case FloatType | DoubleType => op(name, kind, operation.children: _*)
      case _: IntegralType if mode != EvalMode.TRY =>
        Some(parts(operation.children).map(call(name, kind, _, mode == EvalMode.ANSI)))
      case _ => None
    }

    private def divided(
        name: String,
        operation: BinaryArithmetic,
        mode: EvalMode.Value,
        kind: String): Option[Either[String, JValue]] =
      Some(parts(operation.children).map(call(name, kind, _, mode == EvalMode.ANSI)))

    /** Intervals are not: they overflow with an error in every mode. */
    private def signed(name: String, child: Expression, failOnError: Boolean, kind: String): Option[Either[String, JValue]] =
      child.dataType match {
        case _: NumericType =>
          Some(covered(child).map(part => call(name, kind, Seq(part), failOnError && child.dataType.isInstanceOf[IntegralType])))
        case _ => None
      }

    private def cast(child: Expression, to: DataType): Option[Either[String, JValue]] = (child.dataType, to) match {
      case (from, _) if from == to => Some(covered(child))
      case (from: IntegralType, wide: IntegralType) if from.defaultSize < wide.defaultSize => op("cast", number(to).get, child)
      case (_: IntegralType, FloatType | DoubleType) | (FloatType, DoubleType) => op("cast", number(to).get, child)
      case (from: DecimalType, DoubleType) if from.precision <= DigitsOfDoubles =>
        // As Java does it: both numbers are exact, and so the quotient is the nearest double.
        Some(covered(child).map { digits =>
          val wide = call("cast", "float64", Seq(digits), checked = false)
          val unit = constant(JString(BigDecimal(10).pow(from.scale).toString), "float64")
          call("/", "float64", Seq(wide, unit), checked = false)
        })
      case (from: IntegralType, decimal: DecimalType) if DecimalType.forType(from).precision + decimal.scale <= decimal.precision =>
        Some(covered(child).map(value => scaled(call("cast", "int64", Seq(value), checked = false), decimal.scale)))
      case (from: DecimalType, decimal: DecimalType)
          if from.scale <= decimal.scale && from.precision - from.scale <= decimal.precision - decimal.scale =>
        Some(rescaled(child, decimal.scale))
      case _ => None
    }

    private def scaleOf(expression: Expression): Int = expression.dataType match {
      case DecimalType.Fixed(_, scale) => scale
      case _ => 0
    }

    private def rescaled(expression: Expression, scale: Int): Either[String, JValue] =
      if (scaleOf(expression) > scale) Left(Wording.of(expression))
      else covered(expression).map(scaled(_, scale - scaleOf(expression)))

    private def scaled(digits: JValue, places: Int): JValue =
      if (places == 0) digits
      else call("*", "int64", Seq(digits, constant(JString(BigInt(10).pow(places).toString), "int64")), checked = false)

    private def text(literal: Literal): Option[JValue] = literal match {
      case Literal(null, _) => Some(JNull)
      case Literal(value: Decimal, DecimalType.Fixed(_, scale)) if value.scale == scale =>
        Some(JString(value.toUnscaledLong.toString))
      case Literal(value @ (_: Byte | _: Short | _: Int | _: Long | _: Boolean), _) => Some(JString(value.toString))
      case Literal(value: Float, _) => Some(JString(value.toDouble.toString))
      case Literal(value: Double, _) => Some(JString(value.toString))
      case _ => None
    }

    private def constant(text: JValue, kind: String): JValue = ("op" -> "literal") ~ ("text" -> text) ~ ("type" -> kind)

    private def call(name: String, kind: String, args: Seq[JValue], checked: Boolean): JValue =
      ("op" -> name) ~ ("args" -> args) ~ ("type" -> kind) ~ ("checked" -> checked)

    private def parts(args: Seq[Expression]): Either[String, Seq[JValue]] = {
      val found = args.map(covered)
      found.collectFirst { case Left(part) => part }.toLeft(found.collect { case Right(part) => part })
    }

    private def both(one: Either[String, JValue], other: Either[String, JValue]): Either[String, Seq[JValue]] =
      one.flatMap(first => other.map(Seq(first, _)))
  }
}
