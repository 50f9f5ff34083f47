package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types._

/** What an index answers of the conditions of a join, and which of them remain to be tested on what it finds.
  *
  * `guard`: set where conditions may fail on pairs that the index passes over. It is what Spark tests on each pair, up to the
  * last of these. Workers use the index where they know from the smallest and largest values that nothing fails, and test
  * every pair where they do not.
  */
private case class Ranged(residual: Seq[Expression], ranges: Seq[StageRange], guard: Option[Expression])

/** Which conditions of a join its index answers beside equalities: comparisons of the two sides. */
private object Ranges {

  import Shared.formats

  /** Columns of the build side that one index compares. */
  private val MostCompared = Shared("most_compared").extract[Int]

  /** Part conditions into those that remain, and comparisons with at most two columns of the build side.
    *
    * Columns that are bounded on both sides go first. Under equalities, only columns as they are: what remains is tried on
    * few pairs then, and a column that Spark has to compute keeps workers from reading the files themselves. Comparisons that
    * leave a half of all pairs are no gain where a formula has to be tried on each: that takes less than to find the half.
    */
  def among(conditions: Seq[Expression], keyed: Boolean, sides: Sides): Ranged = {
    val comparisons = conditions.flatMap(condition => comparison(condition, sides).map(condition -> _))
    val bands = conditions.flatMap(condition => Bands.implied(condition, sides).map(condition -> _))
    val found = (comparisons ++ bands).map { case (condition, range) => condition -> range.unfailing }
    val ranges = found.map(_._2).filter { range =>
      isComparable(range) && (!keyed || Seq(range.probe, range.build).forall(Widened.unapply(_).isDefined))
    }
    val columns = ranges.groupBy(_.build.canonicalized).toSeq
    val chosen = columns
      .sortBy { case (_, bounds) => (-bounds.map(_.operator.head).distinct.length, ranges.indexOf(bounds.head)) }
      .take(MostCompared)
      .flatMap(_._2)
      .toSet
    def asked(condition: Expression, of: Seq[(Expression, StageRange)]): Boolean =
      of.exists { case (one, range) => one.eq(condition) && chosen(range) }
    val rest = conditions.filterNot(asked(_, found.take(comparisons.length)))
    val formulas = rest.exists(test => WorkerEvaluator.Compiled.covers(test) && sides.isAcross(test.references))
    val taken = Ranged(rest, ranges.filter(chosen), None)
    val none = Ranged(conditions, Nil, None)
    if (!keyed && formulas && isOneSided(taken.ranges)) none
    else {
      val (used, others) = conditions.partition(asked(_, found))
      if (used.isEmpty || Failing.misplaced(Seq(used, others), conditions, sides).isEmpty && !used.exists(Failing.may)) taken
      else {
        val guard = conditions.take(conditions.lastIndexWhere(Failing.may) + 1).reduce(And)
        if (!keyed && WorkerEvaluator.Compiled.covers(guard)) taken.copy(guard = Some(guard)) else none
      }
    }
  }

  /** Whether comparisons leave a half of all pairs, not the few that an interval holds. */
  def isOneSided(ranges: Seq[StageRange]): Boolean =
    ranges.map(range => (range.build.canonicalized, range.operator.head)).distinct.length == 1

  /** The comparison of the two sides that a condition is, with the probe side's value first. */
  private def comparison(condition: Expression, sides: Sides): Option[StageRange] = condition match {
    case Comparison("=" | "<=>", _, _) => None
    case Comparison(operator, left, right) if sides.areSides(left, right) => Some(StageRange(left, operator, right))
    case Comparison(operator, left, right) if sides.areSides(right, left) =>
      Some(StageRange(right, Comparison.mirrored(operator), left))
    case _ => None
  }

  private def isComparable(range: StageRange): Boolean = {
    val values = Seq(range.probe, range.build)
    range.probe.dataType == range.build.dataType && values.forall { value =>
      value.deterministic && isOrdered(value) && Expressions.mayBeBound(value) && !Failing.may(value)
    }
  }

  /** Whether the order of values is that of the keys that they become. */
  private def isOrdered(value: Expression): Boolean = value.dataType match {
    case string: StringType => string.supportsBinaryOrdering && KeyTypes.name(string).isDefined
    case other => KeyTypes.name(other).isDefined
  }
}

/** Bands around a value, `abs(a - b) <= w`: the interval that they imply for the build side's value.
  *
  * It holds what the condition does, and maybe a little more, where sums are rounded: the condition is tested as well.
  */
private object Bands {
  private val DoublesMargin = 1e-15
  private val FloatsMargin = 1e-6

  def implied(condition: Expression, sides: Sides): Seq[StageRange] = condition match {
    case LessThanOrEqual(Distance(a, b), width) => around(a, b, width, sides)
    case LessThan(Distance(a, b), width) => around(a, b, width, sides)
    case GreaterThanOrEqual(width, Distance(a, b)) => around(a, b, width, sides)
    case GreaterThan(width, Distance(a, b)) => around(a, b, width, sides)
    case _ => Nil
  }

  private def around(a: Expression, b: Expression, width: Expression, sides: Sides): Seq[StageRange] =
    if (sides.areSides(a, b)) within(a, b, width, sides)
    else if (sides.areSides(b, a)) within(b, a, width, sides)
    else Nil

  /** `width` is a constant, or lies on one of the two sides: the interval is around the value on the same side. */
  private def within(probe: Expression, build: Expression, width: Expression, sides: Sides): Seq[StageRange] = {
    val ends = if (width.references.isEmpty || width.references.subsetOf(sides.probe.outputSet)) {
      for ((low, high, value) <- interval(probe, width, build)) yield Seq((low, "<=", value), (high, ">=", value))
    } else if (width.references.subsetOf(sides.build.outputSet)) {
      for ((low, high, value) <- interval(build, width, probe)) yield Seq((value, ">=", low), (value, "<=", high))
    } else None
    ends.getOrElse(Nil).map { case (one, operator, other) => StageRange(one, operator, other) }
  }

  /** Both ends of the interval around `center`, and `value` as what it is compared as. */
  private def interval(
      center: Expression,
      width: Expression,
      value: Expression): Option[(Expression, Expression, Expression)] = (center.dataType, width) match {
    case (LongType, Literal(wide: Long, LongType)) if wide >= 0 =>
      val low = If(LessThan(center, Literal(Long.MinValue + wide)), Literal(Long.MinValue), minus(center, Literal(wide)))
      val high = If(GreaterThan(center, Literal(Long.MaxValue - wide)), Literal(Long.MaxValue), plus(center, Literal(wide)))
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
      // Everything is at most NaN, and infinities lie in a band of infinite width.
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

/** The distance between two values. Where a difference may wrap around, those that are far from each other may seem near. */
private object Distance {
  def unapply(expression: Expression): Option[(Expression, Expression)] = expression match {
    case Abs(difference: Subtract, _) if Arithmetic.isAnsi(difference) || !difference.dataType.isInstanceOf[IntegralType] =>
      Some((difference.left, difference.right))
    case Abs(DateDiff(a, b), _) => Some((a, b))
    case _ => None
  }
}
