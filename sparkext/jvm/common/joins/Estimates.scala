package org.apache.spark.sql.sparkext.joins

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.{ExistenceJoin, LeftAnti, LeftSemi}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.plans.logical.statsEstimation.EstimationUtils
import org.apache.spark.sql.sparkext.expressions.{Expressions, Trees}
import org.apache.spark.sql.sparkext.planning.{PipelinedAsOf, PlanMemo}
import org.apache.spark.sql.sparkext.scan.{FileTable, ParquetFiles}

/** Rough estimates of the rows and bytes of a plan.
  *
  * Without table statistics Spark assumes that a filter keeps everything, and that a join is as large as the product of
  * its sides. That does not show which side of the next join is smaller. Here filters have the usual selectivities, and
  * a join is as large as its larger side, reduced by the selectivity of the filters on the other side, as with keys and
  * foreign keys. Parquet files state their number of rows. Spark's own row counts, from statistics or from a stage that
  * has run, take precedence.
  */
object Estimates {
  private val GroupsOf = 0.2
  private val LeastSelectivity = 0.001
  private val Unknown = 0.5

  private val sizes = new PlanMemo[Size]("sparkext.size")

  def begin(plan: LogicalPlan): Unit = sizes.begin(plan)

  def rows(plan: LogicalPlan): Double = size(plan).rows

  def bytes(plan: LogicalPlan): Double = rows(plan) * width(plan)

  /** The number of rows before any filter. */
  def whole(plan: LogicalPlan): Double = size(plan).whole

  /** The estimated number of groups, from the largest range of a grouping column in the files; None if the files state
    * none.
    */
  def groups(aggregate: Aggregate): Option[Double] = {
    val renamed = AttributeMap(aggregate.collect { case Project(columns, _) => columns }.flatten.collect {
      case alias @ Alias(column: Attribute, _) => alias.toAttribute -> column
    })
    val columns = AttributeSet(aggregate.groupingExpressions.collect { case column: Attribute =>
      Expressions.origin(renamed)(column)
    })
    val ranges = aggregate.collect { case leaf @ FileTable(table) =>
      leaf.output.filter(columns.contains).flatMap(ParquetFiles.range(table, _))
    }.flatten
    ranges.maxOption.map(math.min(_, rows(aggregate.child)))
  }

  /** The selectivity of a plan's filters: the fraction of its rows that they keep, 1 without filters. */
  def kept(plan: LogicalPlan): Double = size(plan).kept

  /** `whole`: the number of rows without any filter. */
  private case class Size(rows: Double, whole: Double) {
    def kept: Double = math.min(1.0, rows / math.max(1.0, whole))
    def times(share: Double): Size = copy(rows = rows * share)
  }

  private def size(plan: LogicalPlan): Size = sizes.of(plan)(reckoned(plan))

  private def reckoned(plan: LogicalPlan): Size = plan match {
    case known if known.stats.rowCount.isDefined =>
      val rows = known.stats.rowCount.get.toDouble
      Size(rows, rows)
    case Filter(condition, child) => size(child).times(share(condition))
    case join: Join => joined(join, size(join.left), size(join.right))
    case join: PipelinedAsOf => size(join.left)
    case aggregate: Aggregate if aggregate.groupingExpressions.isEmpty => Size(1.0, 1.0)
    case aggregate: Aggregate =>
      val input = size(aggregate.child)
      Size(input.rows * GroupsOf, input.whole * GroupsOf)
    case union: Union =>
      val sizes = union.children.map(size)
      Size(sizes.map(_.rows).sum, sizes.map(_.whole).sum)
    case unary: UnaryNode => size(unary.child)
    case leaf =>
      val rows = counted(leaf).getOrElse(leaf.stats.sizeInBytes.toDouble / width(leaf))
      Size(rows, rows)
  }

  private def counted(leaf: LogicalPlan): Option[Double] = leaf match {
    case FileTable(table) => ParquetFiles.rows(table)
    case _ => None
  }

  private def joined(join: Join, left: Size, right: Size): Size = join.joinType match {
    case LeftSemi | LeftAnti | _: ExistenceJoin => left
    case _ =>
      val (smaller, larger) = if (left.rows < right.rows) (left, right) else (right, left)
      larger.times(smaller.kept).copy(whole = math.max(left.whole, right.whole))
  }

  private def width(plan: LogicalPlan): Double = EstimationUtils.getSizePerRow(plan.output).toDouble

  /** The selectivity of a condition, estimated from its form. Null checks keep all rows, because Spark adds them to
    * join keys.
    */
  private def share(condition: Expression): Double = math.max(
    LeastSelectivity,
    condition match {
      case _: And => Trees.conjuncts(condition).map(shareOfPart).product
      case _: Or => math.min(1.0, Trees.disjuncts(condition).map(shareOfPart).sum)
      case other if Trees.isDeep(other) => Unknown
      case Not(child) => 1.0 - math.min(0.9, share(child))
      case IsNotNull(_) => 1.0
      case EqualTo(_, _: Literal) | EqualTo(_: Literal, _) => 0.1
      case In(_, list) => math.min(1.0, 0.1 * list.length)
      case InSet(_, set) => math.min(1.0, 0.1 * set.size)
      case _: StringPredicate | _: Like => 0.1
      case comparison: BinaryComparison if comparison.children.exists(_.isInstanceOf[Literal]) => 0.3
      case _ => Unknown
    }
  )

  private def shareOfPart(condition: Expression): Double = if (Trees.isDeep(condition)) Unknown else share(condition)
}
