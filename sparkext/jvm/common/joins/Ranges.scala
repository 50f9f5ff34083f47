package org.apache.spark.sql.sparkext.joins

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.sparkext.expressions.{
  Arithmetic,
  Comparison,
  Expressions,
  Failing,
  Widened,
  WorkerEvaluator
}
import org.apache.spark.sql.sparkext.protocol.Shared
import org.apache.spark.sql.types._

/** The conditions of a join that an index answers (`ranges`), and those that remain to be tested on the pairs that it
  * finds (`residual`).
  *
  * `guard`: set if conditions may fail on pairs that the index skips. It consists of the conditions that Spark tests on
  * each pair, up to the last that may fail. Workers use the index if the smallest and largest values of the columns
  * show that nothing fails, and test every pair otherwise.
  */
private case class Ranged(residual: Seq[Expression], ranges: Seq[StageComparison], guard: Option[Expression])

/** Chooses the conditions of a join that its index answers in addition to equalities: comparisons of the two sides. */
private object Ranges {

  /** The largest number of columns of the build side that one index compares. */
  private val MostCompared = Shared[Int]("most_compared")

  /** Divide conditions into those that remain, and comparisons with at most two columns of the build side.
    *
    * Columns that are bounded from both sides come first. With equalities, only plain columns are compared: the
    * remaining conditions are tested on few pairs then, and a column that Spark has to compute keeps workers from
    * reading the files themselves. Comparisons that keep half of all pairs are of no use if a formula has to be tested
    * on each of these: testing it on all pairs costs less than finding that half.
    */
  def among(conditions: Seq[Expression], keyed: Boolean, sides: Sides): Ranged = {
    val comparisons = conditions.flatMap(condition => comparison(condition, sides).map(condition -> _))
    val bands = conditions.flatMap(condition => Bands.implied(condition, sides).map(condition -> _))
    val found = (comparisons ++ bands).map { case (condition, range) => condition -> range.map(Failing.unfailing) }
    val ranges = found.map(_._2).filter { range =>
      isComparable(range) && (!keyed || Seq(range.probe, range.build).forall(Widened.unapply(_).isDefined))
    }
    val columns = ranges.groupBy(_.build.canonicalized).toSeq
    val chosen = columns
      .sortBy { case (_, bounds) => (-bounds.map(_.operator.head).distinct.length, ranges.indexOf(bounds.head)) }
      .take(MostCompared)
      .flatMap(_._2)
      .toSet
    def asked(condition: Expression, of: Seq[(Expression, StageComparison)]): Boolean =
      of.exists { case (one, range) => one.eq(condition) && chosen(range) }
    val rest = conditions.filterNot(asked(_, found.take(comparisons.length)))
    val formulas = rest.exists(test => WorkerEvaluator.Compiled.covers(test) && sides.isAcross(test.references))
    val taken = Ranged(rest, ranges.filter(chosen), None)
    val none = Ranged(conditions, Nil, None)
    if (!keyed && formulas && isOneSided(taken.ranges)) none
    else {
      val (used, others) = conditions.partition(asked(_, found))
      if (used.isEmpty || Failing.misplaced(Seq(used, others), conditions, sides).isEmpty && !used.exists(Failing.may))
        taken
      else {
        val guard = conditions.take(conditions.lastIndexWhere(Failing.may) + 1).reduce(And)
        if (!keyed && WorkerEvaluator.Compiled.covers(guard)) taken.copy(guard = Some(guard)) else none
      }
    }
  }

  /** Whether comparisons keep half of all pairs, instead of the few in an interval. */
  def isOneSided(ranges: Seq[StageComparison]): Boolean =
    ranges.map(range => (range.build.canonicalized, range.operator.head)).distinct.length == 1

  /** The condition as a comparison of the two sides, with the probe side's value first. */
  private def comparison(condition: Expression, sides: Sides): Option[StageComparison] = condition match {
    case Comparison("=" | Comparison.NullSafe, _, _) => None
    case Comparison(operator, left, right) => sides.comparison(operator, left, right)
    case _ => None
  }

  private def isComparable(range: StageComparison): Boolean = {
    val values = Seq(range.probe, range.build)
    range.probe.dataType == range.build.dataType && values.forall { value =>
      value.deterministic && KeyTypes.isOrdered(value.dataType) && Expressions.mayBeBound(value) && !Failing.may(value)
    }
  }
}

/** Bands around a value, `abs(a - b) <= w`: the interval that they imply for the build side's value.
  *
  * The interval contains all values that satisfy the condition, and maybe a few others, because sums are rounded. So
  * the condition is tested as well.
  */
private object Bands {
  private val DoublesMargin = 1e-15
  private val FloatsMargin = 1e-6

  def implied(condition: Expression, sides: Sides): Seq[StageComparison] = condition match {
    case LessThanOrEqual(Distance(a, b), width) => around(a, b, width, sides)
    case LessThan(Distance(a, b), width) => around(a, b, width, sides)
    case GreaterThanOrEqual(width, Distance(a, b)) => around(a, b, width, sides)
    case GreaterThan(width, Distance(a, b)) => around(a, b, width, sides)
    case _ => Nil
  }

  private def around(a: Expression, b: Expression, width: Expression, sides: Sides): Seq[StageComparison] =
    if (sides.areSides(a, b)) within(a, b, width, sides)
    else if (sides.areSides(b, a)) within(b, a, width, sides)
    else Nil

  /** `width` is a constant, or an expression of one of the two sides. The interval is around the value of the same
    * side, or around the probe side's value for a constant.
    */
  private def within(probe: Expression, build: Expression, width: Expression, sides: Sides): Seq[StageComparison] = {
    val ends = if (width.references.isEmpty || width.references.subsetOf(sides.probe.outputSet)) {
      for ((low, high, value) <- interval(probe, width, build)) yield Seq((low, "<=", value), (high, ">=", value))
    } else if (width.references.subsetOf(sides.build.outputSet)) {
      for ((low, high, value) <- interval(build, width, probe)) yield Seq((value, ">=", low), (value, "<=", high))
    } else None
    ends.getOrElse(Nil).map { case (one, operator, other) => StageComparison(one, operator, other) }
  }

  /** Both ends of the interval around `center`, and `value` in the type in which it is compared with them. */
  private def interval(
      center: Expression,
      width: Expression,
      value: Expression): Option[(Expression, Expression, Expression)] = (center.dataType, width) match {
    case (LongType, Literal(wide: Long, LongType)) if wide >= 0 =>
      val low =
        If(LessThan(center, Literal(Long.MinValue + wide)), Literal(Long.MinValue), minus(center, Literal(wide)))
      val high =
        If(GreaterThan(center, Literal(Long.MaxValue - wide)), Literal(Long.MaxValue), plus(center, Literal(wide)))
      Some((low, high, value))
    case (LongType, _) => None
    case (DateType, _) => interval(UnixDate(center), width, UnixDate(value))
    case (_: IntegralType, _) if width.dataType.isInstanceOf[IntegralType] && width.dataType != LongType =>
      val (middle, wide) = (as(center, LongType), as(width, LongType))
      Some((minus(middle, wide), plus(middle, wide), as(value, LongType)))
    case (FloatType | DoubleType, _) if width.dataType == center.dataType =>
      val margin = Literal(if (center.dataType == FloatType) FloatsMargin else DoublesMargin)
      val (middle, wide) = (as(center, DoubleType), as(width, DoubleType))
      val wider = plus(wide, Multiply(plus(Abs(middle, false), Abs(wide, false)), margin))
      // An end may be NaN, the difference of infinities. Infinities are within a band of infinite width, so neither end
      // may exclude a value: no value exceeds NaN as the upper end, and the lower end is replaced.
      val low = minus(middle, wider)
      val open = If(EqualTo(low, Literal(Double.NaN)), Literal(Double.NegativeInfinity), low)
      Some((open, plus(middle, wider), as(value, DoubleType)))
    case _ => None
  }

  private def as(value: Expression, dataType: DataType): Expression =
    if (value.dataType == dataType) value else Cast(value, dataType)

  private def plus(one: Expression, other: Expression): Expression = Arithmetic.plus(one, other, EvalMode.LEGACY)
  private def minus(one: Expression, other: Expression): Expression = Arithmetic.minus(one, other, EvalMode.LEGACY)
}

/** The distance between two values. A difference that may wrap around does not qualify: distant values could seem near.
  */
private object Distance {
  def unapply(expression: Expression): Option[(Expression, Expression)] = expression match {
    case Abs(difference: Subtract, _)
        if Arithmetic.isAnsi(difference) || !difference.dataType.isInstanceOf[IntegralType] =>
      Some((difference.left, difference.right))
    case Abs(DateDiff(a, b), _) => Some((a, b))
    case _ => None
  }
}
