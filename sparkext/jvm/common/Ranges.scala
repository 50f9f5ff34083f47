package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.types.StringType

/** Which conditions of a join its index answers beside equalities: comparisons of the two sides. */
private object Ranges {

  /** Columns of the build side that one index compares, see Python's `kernels/range_index.py`. */
  private val MostCompared = 2

  /** Part conditions into those that remain, and comparisons with at most two columns of the build side.
    *
    * Columns that are bounded on both sides go first. Under equalities, only columns as they are: what remains is tried on
    * few pairs then, and a column that Spark has to compute keeps workers from reading the files themselves.
    */
  def among(conditions: Seq[Expression], keyed: Boolean, sides: Sides): (Seq[Expression], Seq[StageRange]) = {
    val ranges = conditions.flatMap(condition => comparison(condition, sides).map(condition -> _)).filter { case (_, range) =>
      isComparable(range) && (!keyed || Seq(range.probe, range.build).forall(Widened.unapply(_).isDefined))
    }
    val columns = ranges.map(_._2).groupBy(_.build.canonicalized).toSeq
    val chosen = columns
      .sortBy { case (_, bounds) => (-bounds.map(_.operator.head).distinct.length, ranges.indexWhere(_._2 == bounds.head)) }
      .take(MostCompared)
      .flatMap(_._2)
      .toSet
    val taken = ranges.filter { case (_, range) => chosen(range) }
    (conditions.filterNot(taken.map(_._1).contains), taken.map(_._2))
  }

  private def comparison(condition: Expression, sides: Sides): Option[StageRange] = condition match {
    case GreaterThanOrEqual(left, right) => range(left, ">=", right, "<=", sides)
    case GreaterThan(left, right) => range(left, ">", right, "<", sides)
    case LessThanOrEqual(left, right) => range(left, "<=", right, ">=", sides)
    case LessThan(left, right) => range(left, "<", right, ">", sides)
    case _ => None
  }

  private def range(left: Expression, operator: String, right: Expression, mirrored: String, sides: Sides): Option[StageRange] =
    if (sides.areSides(left, right)) Some(StageRange(left, operator, right))
    else if (sides.areSides(right, left)) Some(StageRange(right, mirrored, left))
    else None

  private def isComparable(range: StageRange): Boolean = {
    val values = Seq(range.probe, range.build)
    range.probe.dataType == range.build.dataType && values.forall { value =>
      value.deterministic && isOrdered(value) && Expressions.mayBeBound(value)
    }
  }

  /** Whether the order of values is that of the keys that they become. */
  private def isOrdered(value: Expression): Boolean = value.dataType match {
    case string: StringType => string.supportsBinaryOrdering && KeyTypes.name(string).isDefined
    case other => KeyTypes.name(other).isDefined
  }
}
