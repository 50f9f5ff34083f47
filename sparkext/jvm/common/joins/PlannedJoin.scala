package org.apache.spark.sql.sparkext.joins

import org.json4s.JsonAST.JValue

import org.apache.spark.sql.sparkext.expressions.{Comparison, PairCondition}

/** Column number `column` of source number `source`: 0 is the probe side, k the build side of the k-th join. */
case class ColumnRef(source: Int, column: Int)

/** One comparison, `probe operator build`: a column of the row so far and a column of the build side, as `keyType`. */
case class PlannedComparison(probe: ColumnRef, operator: String, build: Int, keyType: String) {
  def nullSafe: Boolean = operator == Comparison.NullSafe
}

/** The nearest row: a column of the row so far and a column of the build side, both as `keyType`. */
case class PlannedAsOf(
    probe: ColumnRef,
    build: Int,
    keyType: String,
    direction: String,
    exact: Boolean,
    tolerance: Option[Long])

/** The filter of rows that have passed all joins, as Python's `Expression`. `formula`: set if it may fail. */
case class PlannedFilter(spec: JValue, formula: Option[PairCondition], described: String)

/** One column of an order, by its number among the pipeline's output columns. */
case class PlannedOrder(output: Int, ascending: Boolean, nullsFirst: Boolean)

/** The first rows of each task, as Python's `Top`. */
case class PlannedTop(count: Int, order: Seq[PlannedOrder], described: String)

/** One join of the pipeline, like Python's `JoinSpec`. `formula`: Spark's expression of the part that may fail, if any.
  */
case class PlannedJoin(
    kind: String,
    keys: Seq[PlannedComparison],
    ranges: Seq[PlannedComparison],
    asOf: Option[PlannedAsOf],
    condition: Option[JValue],
    theta: Option[JValue],
    guard: Option[JValue],
    formula: Option[PairCondition],
    label: String,
    algorithm: String,
    probeOrdered: Boolean,
    maxBuildBytes: Long) {

  /** Whether a probe row is joined with every build row of its key, instead of only the first. */
  def paired: Boolean =
    !Set("semi", "anti", "existence")(
      kind) || ranges.nonEmpty || condition.nonEmpty || theta.nonEmpty || formula.nonEmpty
}
