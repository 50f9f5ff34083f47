package org.apache.spark.sql.sparkext.expressions

import java.time.ZoneOffset

import scala.util.Try

import org.json4s.JsonAST._
import org.json4s.JsonDSL._

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.util.DateTimeUtils
import org.apache.spark.sql.sparkext.joins.{ColumnRef, KeyTypes}
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** A node of an expression for workers, as Python's `plans/expressions/expression.py` reads it. `origin` is the Catalyst expression
  * for which it was written.
  */
case class WorkerExpression(
    op: String,
    dataType: DataType,
    args: Seq[WorkerExpression],
    origin: Expression,
    private val details: JObject = JObject()) {

  def json: JObject = {
    val node = ("op" -> op) ~ ("type" -> KeyTypes.name(dataType).map(JString(_)).getOrElse(JNull)) ~ details
    if (args.isEmpty) node else node ~ ("args" -> args.map(_.json))
  }
}

/** Translates the expressions that have the same value in workers as in Spark, to the bit: columns and literals;
  * arithmetic of integers, floats and decimals; comparisons, lists, null tests, and tests of strings byte by byte;
  * parts of strings by characters; fields of dates; the connectives, and choices. Functions whose last digit depends on
  * the library, such as sines and powers, are not in the language.
  */
object WorkerExpression {
  private val Deepest = 200
  private val MostCompared = 200
  private val TooDeep = Reason("CONDITION_TOO_DEEP")

  /** The translated expression, or the part that is not in the language. */
  def of(expression: Expression, place: Attribute => ColumnRef): Either[String, WorkerExpression] =
    new Translation(place, Deepest).of(expression)

  /** A value as text: dates are days and timestamps microseconds, as in Spark's memory. None for types without a text
    * form.
    */
  def text(literal: Literal): Option[JValue] = literal match {
    case Literal(null, _) => Some(JNull)
    case Literal(value: UTF8String, _) if UTF8String.fromString(value.toString) == value =>
      Some(JString(value.toString))
    case Literal(value: Decimal, decimal: DecimalType) =>
      Try(value.toJavaBigDecimal.setScale(decimal.scale)).toOption.map(exact => JString(exact.toPlainString))
    case Literal(value: Float, _) => Some(JString(value.toDouble.toString))
    case Literal(value @ (_: Byte | _: Short | _: Int | _: Long | _: Double | _: Boolean), _) =>
      Some(JString(value.toString))
    case _ => None
  }

  /** `levels`: the number of levels that the tree may still have. Nested connectives of one type are one node. */
  private class Translation(place: Attribute => ColumnRef, levels: Int) {
    private lazy val below = new Translation(place, levels - 1)

    def of(expression: Expression): Either[String, WorkerExpression] =
      if (levels == 0) Left(TooDeep)
      else node(expression).getOrElse(Left(Wording.of(expression)))

    /** None for an expression that is not in the language itself, Left if a part of it is not. */
    private def node(expression: Expression): Option[Either[String, WorkerExpression]] = expression match {
      case Widened(column) => Some(Right(columnOf(column, expression)))
      case constant: Literal => text(constant).filter(_ => isNamed(constant)).map { value =>
          Right(WorkerExpression("literal", constant.dataType, Nil, constant, JObject("text" -> value)))
        }
      case converted: Cast => cast(converted.child, converted)
      case add: Add => arithmetic("+", add)
      case subtract: Subtract => arithmetic("-", subtract)
      case multiply: Multiply => arithmetic("*", multiply)
      case divide: Divide if divide.dataType == DoubleType =>
        call("/", divide, Arithmetic.isAnsi(divide))
      case rest: Remainder if !rest.dataType.isInstanceOf[DecimalType] =>
        call("%", rest, Arithmetic.isAnsi(rest))
      case rest: Remainder if isExactRest(rest) && !Arithmetic.isTry(rest) =>
        call("remainder", rest, Arithmetic.isAnsi(rest))
      case rest: Pmod if isExactRest(rest) && !Arithmetic.isTry(rest) =>
        call("pmod", rest, Arithmetic.isAnsi(rest))
      case quotient: IntegralDivide if quotient.left.dataType == LongType && !Arithmetic.isTry(quotient) =>
        call("div", quotient, Arithmetic.isAnsi(quotient))
      case Round(child, Literal(places: Int, _), ansi) => rounded("round", child, places, expression, ansi)
      case BRound(child, Literal(places: Int, _), ansi) => rounded("round_even", child, places, expression, ansi)
      case floor: Floor => whole("floor", floor)
      case ceil: Ceil => whole("ceil", ceil)
      case IsNaN(_) => call("is_nan", expression)
      case _: NaNvl => call("nan_or", expression)
      case UnaryMinus(_, failOnError) => signed("negate", expression, failOnError)
      case Abs(_, failOnError) => signed("abs", expression, failOnError)
      case UnaryPositive(child) => Some(of(child))
      case KnownNotNull(child) => Some(of(child))
      case divide: Divide if divide.dataType.isInstanceOf[DecimalType] && !Arithmetic.isTry(divide) =>
        call("over", divide, Arithmetic.isAnsi(divide))
      case UnscaledValue(child) => call("unscaled", expression)
      case CheckOverflowInSum(sum, decimal, nullOnOverflow, _) =>
        if (nullOnOverflow) Some(of(sum))
        else Some(parts(Seq(sum)).flatMap(known => unlessOverflown(known.head, known.head, decimal, expression)))
      case DecimalDivideWithOverflowCheck(sum, count, decimal, _, nullOnOverflow) =>
        Some(parts(Seq(sum, count)).flatMap { parts =>
          val mean = made("over", expression, parts, checked = !nullOnOverflow)
          if (nullOnOverflow) Right(mean) else unlessOverflown(parts.head, mean, decimal, expression)
        })
      case _: Sqrt => call("sqrt", expression)
      case _: DateDiff => call("-", expression)
      case DateAdd(_, days) if days.dataType == IntegerType => call("+", expression)
      case DateSub(_, days) if days.dataType == IntegerType => call("-", expression)
      case _: UnixDate => call("cast", expression)
      case _: LastDay => call("last_day", expression)
      case _: AddMonths => call("add_months", expression, checked = true)
      case DateAddYMInterval(date, Literal(months: Int, interval)) =>
        Some(parts(Seq(date, Literal(months))).map(made("add_months", expression, _, checked = true)))
      case TruncDate(date, Literal(format: UTF8String, _)) => startOf(format).map { start =>
          parts(Seq(date)).map(made(start, expression, _, checked = start == "quarter_start"))
        }
      case field: GetDateField if field.child.dataType == DateType => dateField(field).flatMap(call(_, field))
      case Substring(text, from: Literal, length: Literal)
          if from.value != null && length.value != null && isString(text) =>
        call("substring", expression)
      case StringTrim(text, None) if isString(text) => call("trim", expression)
      case StringTrimLeft(text, None) if isString(text) => call("trim_left", expression)
      case StringTrimRight(text, None) if isString(text) => call("trim_right", expression)
      case Upper(text) => cased("upper", text, CaseMappings.upper, expression)
      case Lower(text) => cased("lower", text, CaseMappings.lower, expression)
      case Length(child) if isString(child) => call("length", expression)
      case Concat(children) if children.nonEmpty && children.forall(isString) => call("concat", expression)
      case Comparison(operator, left, right) if isCompared(operator, left, right) => call(operator, expression)
      case Listed(value, constants, others) => among(value, constants, others, expression)
      case IsNull(column: Attribute) => Some(Right(test("is_null", Seq(columnOf(column, column)), expression)))
      case _: IsNull => call("is_null", expression)
      case IsNotNull(child) => Some(of(Not(IsNull(child))))
      case _: And => connective("and", Trees.conjuncts(expression), expression)
      case _: Or => connective("or", Trees.disjuncts(expression), expression)
      case _: Not => call("not", expression)
      case StartsWith(_, pattern: Literal) => stringTest("starts_with", expression, pattern)
      case EndsWith(_, pattern: Literal) => stringTest("ends_with", expression, pattern)
      case Contains(_, pattern: Literal) => stringTest("contains", expression, pattern)
      case Like(looked, LikePattern(pattern), escape) if isString(looked) =>
        like(expression, looked, LikePattern.plain(pattern, escape))
      case _: If => call("if", expression)
      // The choices are nested in each other, and their type is computed from all of them, recursively.
      case CaseWhen(branches, _) if branches.length >= levels => Some(Left(TooDeep))
      case CaseWhen(branches, otherwise) =>
        val last = otherwise.getOrElse(Literal(null, expression.dataType))
        Some(of(branches.foldRight(last) { case ((condition, value), next) => If(condition, value, next) }))
      case _: Coalesce => call("coalesce", expression)
      case _: Least => call("least", expression)
      case _: Greatest => call("greatest", expression)
      case _ => None
    }

    /** `value`, or an overflow error if `sum` is null: only an overflow makes the sum of at least one decimal null. */
    private def unlessOverflown(
        sum: WorkerExpression,
        value: WorkerExpression,
        decimal: DecimalType,
        of: Expression): Either[String, WorkerExpression] = {
      val unit = DecimalType(1, 0)
      val failing = Divide(Literal(Decimal(1), unit), Literal(Decimal(0), unit), EvalMode.ANSI)
      below.of(Cast(failing, decimal, ansiEnabled = true)).map { failure =>
        made("if", of, Seq(test("is_null", Seq(sum), of), failure, value), checked = false)
      }
    }

    /** Any column can be tested for null, whatever its type. */
    private def columnOf(column: Attribute, as: Expression): WorkerExpression = {
      val ref = place(column)
      WorkerExpression("column", as.dataType, Nil, as, ("source" -> ref.source) ~ ("column" -> ref.column))
    }

    private def isNamed(expression: Expression): Boolean = KeyTypes.name(expression.dataType).isDefined

    private def call(name: String, of: Expression, checked: Boolean = false): Option[Either[String, WorkerExpression]] =
      if (isNamed(of)) Some(parts(of.children).map(made(name, of, _, checked))) else None

    private def made(name: String, of: Expression, args: Seq[WorkerExpression], checked: Boolean): WorkerExpression =
      WorkerExpression(name, of.dataType, args, of, if (checked) JObject("checked" -> JBool(true)) else JObject())

    private def test(name: String, args: Seq[WorkerExpression], of: Expression): WorkerExpression =
      WorkerExpression(name, BooleanType, args, of)

    private def parts(args: Seq[Expression]): Either[String, Seq[WorkerExpression]] = Reasons.all(args.map(below.of))

    private def connective(
        name: String,
        children: Seq[Expression],
        of: Expression): Option[Either[String, WorkerExpression]] = Some(parts(children).map(test(name, _, of)))

    /** With some collations, equal strings have equal bytes, but the order of strings is not that of their bytes. */
    private def isCompared(operator: String, left: Expression, right: Expression): Boolean =
      left.dataType == right.dataType && isNamed(left) && (left.dataType match {
        case string: StringType => string.supportsBinaryOrdering || operator == "=" || operator == "<=>"
        case _ => true
      })

    /** One search in all constants of the list, whatever their number, and one comparison for each element that is not
      * constant. The search comes first, so a list with constants must not have other elements that may fail.
      */
    private def among(
        value: Expression,
        constants: Seq[Literal],
        others: Seq[Expression],
        of: Expression): Option[Either[String, WorkerExpression]] = {
      val texts = constants.filter(_.dataType == value.dataType).flatMap(text)
      val isCovered = texts.length == constants.length && others.forall(isCompared("=", value, _)) && isNamed(value) &&
        (constants.isEmpty || !others.exists(Failing.may))
      if (others.length > MostCompared) Some(Left(Reason("LIST_TOO_LONG", MostCompared)))
      else if (!isCovered) None
      else Some(for (looked <- below.of(value); elements <- parts(others)) yield {
        val listed = WorkerExpression("in", BooleanType, Seq(looked), of, JObject("list" -> JArray(texts.toList)))
        val compared = elements.map(element => test("=", Seq(looked, element), of))
        val all = if (constants.isEmpty) compared else listed +: compared
        if (all.length == 1) all.head else test("or", all, of)
      })
    }

    private def stringTest(name: String, of: Expression, pattern: Literal): Option[Either[String, WorkerExpression]] =
      if (pattern.value != null && of.children.forall(isString)) call(name, of) else None

    private def isString(expression: Expression): Boolean = KeyTypes.name(expression.dataType).contains("string")

    private def like(
        of: Expression,
        looked: Expression,
        pattern: Option[String]): Option[Either[String, WorkerExpression]] = pattern.map { text =>
      val constant = WorkerExpression("literal", StringType, Nil, of, JObject("text" -> JString(text)))
      below.of(looked).map(value => test("like", Seq(value, constant), of))
    }

    /** Workers have no case tables: the tables of this JVM are sent with the expression. */
    private def cased(name: String, text: Expression, mapping: => String, of: Expression) =
      if (text.dataType != StringType || !CaseMappings.areThoseOfLetters) None
      else Some(below.of(text).map { value =>
        val constant = WorkerExpression("literal", StringType, Nil, of, JObject("text" -> JString(mapping)))
        made(name, of, Seq(value, constant), checked = false)
      })

    private def dateField(field: GetDateField): Option[String] = field match {
      case _: Year => Some("year")
      case _: Quarter => Some("quarter")
      case _: Month => Some("month")
      case _: DayOfMonth => Some("day")
      case _: DayOfWeek => Some("day_of_week")
      case _: WeekDay => Some("weekday")
      case _: DayOfYear => Some("day_of_year")
      case _: WeekOfYear => Some("week")
      case _ => None
    }

    private def startOf(format: UTF8String): Option[String] = DateTimeUtils.parseTruncLevel(format) match {
      case DateTimeUtils.TRUNC_TO_YEAR => Some("year_start")
      case DateTimeUtils.TRUNC_TO_QUARTER => Some("quarter_start")
      case DateTimeUtils.TRUNC_TO_MONTH => Some("month_start")
      case DateTimeUtils.TRUNC_TO_WEEK => Some("week_start")
      case _ => None
    }

    /** Whether the remainder is exact. Spark computes the remainder of decimals from a quotient of at most 38 digits,
      * and the type of the remainder must hold all of its digits.
      */
    private def isExactRest(rest: BinaryArithmetic): Boolean =
      (rest.left.dataType, rest.right.dataType, rest.dataType) match {
        case (DecimalType.Fixed(one, scale), DecimalType.Fixed(_, otherScale), DecimalType.Fixed(_, ofRest)) =>
          one - scale + otherScale <= DecimalType.MAX_PRECISION && ofRest == math.max(scale, otherScale)
        case _ => true
      }

    /** Floats are not covered: Spark rounds them by their printed form, which differs between Java versions. */
    private def rounded(name: String, child: Expression, places: Int, of: Expression, ansi: Boolean) =
      (child.dataType, of.dataType) match {
        // Otherwise it may overflow.
        case (from: DecimalType, to: DecimalType)
            if from.precision - from.scale < DecimalType.MAX_PRECISION && places > -to.precision => call(name, of)
        case (_: IntegralType, _) if places >= -MostPlaces => call(name, of, checked = ansi && places < 0)
        case _ => None
      }

    private def whole(name: String, of: UnaryMathExpression): Option[Either[String, WorkerExpression]] =
      (of.child.dataType, of.dataType) match {
        case (from, to) if from == to => Some(this.of(of.child))
        case (DoubleType, LongType) => call(name, of, Failing.isChecked(of))
        case (_: DecimalType, _: DecimalType) => call(name, of)
        case _ => None
      }

    /** Most decimal types can hold the exact result. With the others, it is rounded, or overflows. */
    private def arithmetic(name: String, operation: BinaryArithmetic): Option[Either[String, WorkerExpression]] =
      operation.dataType match {
        case decimal: DecimalType =>
          val scales = operation.children.map(scaleOf)
          val linedUp = if (name == "*") scales.sum == decimal.scale else scales.max <= decimal.scale
          if (linedUp && Failing.holds(decimal, operation)) call(name, operation)
          else if (!Arithmetic.isTry(operation)) call(Rounding(name), operation, Arithmetic.isAnsi(operation))
          else None
        case FloatType | DoubleType => call(name, operation)
        case _: IntegralType if !Arithmetic.isTry(operation) => call(name, operation, Arithmetic.isAnsi(operation))
        case _ => None
      }

    private def scaleOf(expression: Expression): Int = expression.dataType match {
      case DecimalType.Fixed(_, scale) => scale
      case _ => 0
    }

    /** Intervals are not covered: they overflow with an error in every mode. Long decimals are not covered: Spark keeps
      * at most 34 digits of them.
      */
    private def signed(name: String, of: Expression, failOnError: Boolean): Option[Either[String, WorkerExpression]] =
      of.dataType match {
        case decimal: DecimalType if decimal.precision > DigitsOfSigns => None
        case _: NumericType => call(name, of, failOnError && of.dataType.isInstanceOf[IntegralType])
        case _ => None
      }

    private def cast(child: Expression, of: Cast): Option[Either[String, WorkerExpression]] =
      (child.dataType, of.dataType) match {
        case (from, to) if from == to => Some(this.of(child))
        case (from, to) if isExact(from, to) => call("cast", of)
        case (_: IntegralType | _: DecimalType, _: DecimalType) => call("to_decimal", of, of.evalMode == EvalMode.ANSI)
        case (_: NumericType | BooleanType, to: IntegralType)
            if of.evalMode != EvalMode.TRY && isCutOff(child, to, of) =>
          call("to_integer", of, of.evalMode == EvalMode.ANSI && child.dataType != BooleanType)
        case (TimestampNTZType, DateType) => call("to_date", of)
        case (TimestampType, DateType) if isInUTC(of) => call("to_date", of)
        case (DateType, TimestampNTZType) => call("to_timestamp", of, checked = true)
        case (DateType, TimestampType) if isInUTC(of) => call("to_timestamp", of, checked = true)
        case (TimestampType, TimestampNTZType) | (TimestampNTZType, TimestampType) if isInUTC(of) =>
          call("to_timestamp", of)
        case _ => None
      }

    /** Whether workers truncate decimals as Spark does. In ANSI mode Spark converts some long decimals to doubles
      * first, if the integer has fewer than 64 bits.
      */
    private def isCutOff(child: Expression, to: IntegralType, of: Cast): Boolean = child.dataType match {
      case decimal: DecimalType =>
        to == LongType || of.evalMode != EvalMode.ANSI || decimal.scale == 0 || decimal.precision <= DigitsOfDoubles
      case _ => true
    }

    private def isInUTC(cast: Cast): Boolean =
      cast.timeZoneId.exists(zone => Try(DateTimeUtils.getZoneId(zone).normalized == ZoneOffset.UTC).getOrElse(false))

    /** Whether a cast is exact. A decimal becomes the same double as in Java if its digits and its unit are exact
      * doubles.
      */
    private def isExact(from: DataType, to: DataType): Boolean = (from, to) match {
      case (narrow: IntegralType, wide: IntegralType) => narrow.defaultSize < wide.defaultSize
      case (_: IntegralType, FloatType | DoubleType) | (FloatType, DoubleType) => true
      case (decimal: DecimalType, DoubleType) => decimal.precision <= DigitsOfDoubles
      case (number: IntegralType, decimal: DecimalType) =>
        DecimalType.forType(number).precision + decimal.scale <= decimal.precision
      case (from: DecimalType, to: DecimalType) =>
        from.scale <= to.scale && from.precision - from.scale <= to.precision - to.scale
      case _ => false
    }
  }

  private val DigitsOfDoubles = 15
  private val MostPlaces = 18 // 10 to this power is the largest power of ten that fits a word
  private val DigitsOfSigns = 34 // the default precision of Scala's decimals
  private val Rounding = Map("+" -> "plus", "-" -> "minus", "*" -> "times")
}

/** A list, `value IN (…)`, which Spark converts to a set if it is long: its constants, and its other elements. */
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

/** A column, or an integer column cast to a wider type: workers compare and emit either. */
object Widened {
  def unapply(expression: Expression): Option[Attribute] = expression match {
    case column: Attribute => Some(column)
    case Cast(column: Attribute, wide: IntegralType, _, _)
        if column.dataType.isInstanceOf[IntegralType] && column.dataType.defaultSize <= wide.defaultSize =>
      Some(column)
    case _ => None
  }
}
