package org.apache.spark.sql.sparkext.expressions

import java.util.IdentityHashMap

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.util.DateTimeUtils
import org.apache.spark.sql.sparkext.joins.Sides
import org.apache.spark.sql.sparkext.shim.SparkShim
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Decides which expressions may raise an error, and how tests of pairs may be reordered around them.
  *
  * Spark tests the conditions of a join from left to right on each pair with equal keys, and stops at one that is false
  * (not at one that is null). A condition that may fail has to be tested on exactly these pairs.
  */
private[sparkext] object Failing {

  /** Whether computing this may raise an error. An expression that is not known to be safe counts as one that may.
    *
    * A timestamp plus an interval counts as safe: only results outside the range of 580,000 years fail.
    */
  def may(expression: Expression): Boolean = !isTotal(expression) || expression.children.exists(may)

  /** The first part that may raise an error, if there is any. */
  def part(expression: Expression): Option[Expression] = expression.find(!isTotal(_))

  /** Combines filters into one condition. A row that one filter drops, even if only because it is null, must not reach
    * a later filter that may fail. Parts of one filter are treated like filters: Spark's generated code skips a row at
    * the first part that does not hold.
    */
  def inTurn(filters: Seq[Expression]): Option[Expression] =
    filters.flatMap(Trees.conjuncts).reduceOption { (before, next) =>
      And(if (Trees.isDeep(next) || may(next)) EqualNullSafe(before, Literal.TrueLiteral) else before, next)
    }

  private def isTotal(expression: Expression): Boolean = expression match {
    case _: Attribute | _: Literal | _: KnownFloatingPointNormalized | _: NormalizeNaNAndZero | _: KnownNotNull => true
    case _: And | _: Or | _: Not | _: BinaryComparison | _: In | _: InSet | _: IsNull | _: IsNotNull | _: IsNaN => true
    case _: If | _: CaseWhen | _: Coalesce | _: Least | _: Greatest | _: NaNvl | _: AtLeastNNonNulls | _: CreateNamedStruct =>
      true
    case _: StartsWith | _: EndsWith | _: Contains | _: Upper | _: Lower | _: Length | _: OctetLength => true
    case _: Substring | _: StringTrim | _: StringTrimLeft | _: StringTrimRight => true
    case Like(_, LikePattern(pattern), escape) => LikePattern.plain(pattern, escape).isDefined
    case Like(_, Literal(null, _), _) => true
    case concat: Concat => concat.dataType.isInstanceOf[StringType]
    case _: DateAdd | _: DateSub | _: DateDiff | _: UnixDate | _: GetDateField | _: SparkShim.TimePlusInterval | _: LastDay =>
      true
    case TruncDate(_, Literal(format: UTF8String, _)) =>
      DateTimeUtils.parseTruncLevel(format) != DateTimeUtils.TRUNC_TO_QUARTER
    case _: Sqrt | _: UnaryPositive | _: UnscaledValue => true
    case cast: Cast => isTotal(cast)
    case operation @ (_: Add | _: Subtract | _: Multiply) => isTotalSum(operation.asInstanceOf[BinaryArithmetic])
    case divide: Divide => !Arithmetic.isAnsi(divide) || (divide.dataType == DoubleType && isNotZero(divide.right))
    case rest @ (_: Remainder | _: Pmod) => isTotalRest(rest.asInstanceOf[BinaryArithmetic])
    case quotient: IntegralDivide =>
      quotient.left.dataType == LongType && (!Arithmetic.isAnsi(quotient) || isAboveZero(quotient.right))
    case Round(child, Literal(places: Int, _), ansi) => isTotalRounding(child.dataType, places, ansi)
    case BRound(child, Literal(places: Int, _), ansi) => isTotalRounding(child.dataType, places, ansi)
    case whole @ (_: Floor | _: Ceil) => !isChecked(whole) || whole.children.head.dataType != DoubleType
    case UnaryMinus(child, failOnError) => isTotalSign(child, failOnError)
    case Abs(child, failOnError) => isTotalSign(child, failOnError)
    case _ => false
  }

  private def isTotal(cast: Cast): Boolean = (cast.child.dataType, cast.dataType) match {
    case (from, to) if Cast.canUpCast(from, to) => true
    case (_: NumericType, FloatType | DoubleType) | (BooleanType, _: IntegralType) | (
          TimestampType | TimestampNTZType,
          DateType) => true
    case (_: NumericType | _: StringType | _: DatetimeType | BooleanType, _: NumericType) =>
      cast.evalMode != EvalMode.ANSI
    case _ => false
  }

  private def isTotalSum(operation: BinaryArithmetic): Boolean = operation.dataType match {
    case FloatType | DoubleType => true
    case _: IntegralType => !Arithmetic.isAnsi(operation)
    case decimal: DecimalType => !Arithmetic.isAnsi(operation) || holds(decimal, operation)
    case _ => false // intervals, which fail in every mode
  }

  /** Whether the type of a result can hold the exact result. */
  def holds(result: DecimalType, operation: BinaryArithmetic): Boolean =
    (operation, operation.left.dataType, operation.right.dataType) match {
      case (_: Multiply, DecimalType.Fixed(one, _), DecimalType.Fixed(other, _)) =>
        one + other + 1 <= DecimalType.MAX_PRECISION
      case (_, DecimalType.Fixed(one, scale), DecimalType.Fixed(other, otherScale)) =>
        math.max(one - scale, other - otherScale) + math.max(scale, otherScale) + 1 <= result.precision
      case _ => false
    }

  private def isTotalSign(child: Expression, failOnError: Boolean): Boolean = child.dataType match {
    case FloatType | DoubleType | _: DecimalType => true
    case _: IntegralType => !failOnError
    case _ => false
  }

  /** Whether a remainder cannot fail. The quotient of decimals may need more digits than Spark has for it. */
  private def isTotalRest(rest: BinaryArithmetic): Boolean = (rest.left.dataType, rest.right.dataType) match {
    case (DecimalType.Fixed(one, scale), DecimalType.Fixed(_, otherScale)) =>
      one - scale + otherScale <= DecimalType.MAX_PRECISION && !Arithmetic.isAnsi(rest)
    case _ => !Arithmetic.isAnsi(rest) || isNotZero(rest.right)
  }

  private def isTotalRounding(of: DataType, places: Int, ansi: Boolean): Boolean = of match {
    case decimal: DecimalType =>
      places >= 0 || (decimal.precision < DecimalType.MAX_PRECISION && places > -DecimalType.MAX_PRECISION)
    case _: IntegralType => places >= 0 || (!ansi && places > -DecimalType.MAX_PRECISION)
    case _ => math.abs(places.toLong) < DecimalType.MAX_PRECISION // with more places, rounding may fail
  }

  /** Whether FLOOR or CEIL raises an error if a double is outside the range of a long: from Spark 4.3 on, in ANSI mode.
    */
  def isChecked(whole: Expression): Boolean = whole.productIterator.contains(true)

  private def isAboveZero(divisor: Expression): Boolean = divisor match {
    case Literal(value: Number, _) => value.doubleValue > 0.0
    case _ => false
  }

  private def isNotZero(divisor: Expression): Boolean = divisor match {
    case Literal(value: Number, _) => value.doubleValue != 0.0
    case _ => false
  }

  /** The same expression without overflow errors: integer sums wrap around instead. */
  def unfailing(expression: Expression): Expression = expression.transformUp {
    case add: Add if isIntegral(add) => Arithmetic.plus(add.left, add.right, EvalMode.LEGACY)
    case subtract: Subtract if isIntegral(subtract) => Arithmetic.minus(subtract.left, subtract.right, EvalMode.LEGACY)
  }

  private def isIntegral(sum: Expression): Boolean = sum.dataType.isInstanceOf[IntegralType]

  /** The first condition of a join that may fail and would be tested on other pairs than in Spark, if `groups` of
    * conditions are tested one after another: each group from left to right, on the pairs for which all groups before
    * are true.
    */
  def misplaced(groups: Seq[Seq[Expression]], conditions: Seq[Expression], sides: Sides): Option[Expression] = {
    val places = new IdentityHashMap[Expression, Int]
    conditions.zipWithIndex.foreach { case (condition, place) => places.put(condition, place) }
    groups.indices.flatMap { number =>
      val failing = groups(number).filter(may)
      lazy val (before, after) = (groups.take(number).flatten, groups.drop(number + 1).flatten)
      lazy val someNull = before.exists(isNullable(_, sides))
      lazy val (last, next) = (before.map(places.get).maxOption, after.map(places.get).minOption)
      failing.filter { condition =>
        someNull || last.exists(_ > places.get(condition)) || next.exists(_ < places.get(condition))
      }
    }.headOption
  }

  private def isNullable(condition: Expression, sides: Sides): Boolean = {
    val columns = AttributeMap(Seq(sides.probe, sides.build).flatMap(receivedColumns).map(column => column -> column))
    condition.transform { case column: Attribute => columns.getOrElse(column, column) }.nullable
  }

  /** The columns of a plan with the nullability of its rows: not null if a filter ensures that. */
  def receivedColumns(plan: LogicalPlan): Seq[Attribute] = {
    val present = AttributeSet(plan.constraints.collect { case IsNotNull(column: Attribute) => column })
    plan.output.map(column => if (present.contains(column)) column.withNullability(false) else column)
  }
}
