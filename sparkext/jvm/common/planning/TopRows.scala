package org.apache.spark.sql.sparkext.planning

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.{FilterExec, ProjectExec, SparkPlan, TakeOrderedAndProjectExec}
import org.apache.spark.sql.sparkext.exec.PipelinedJoinExec
import org.apache.spark.sql.sparkext.expressions.{Failing, Trees, Wording}
import org.apache.spark.sql.sparkext.joins.{KeyTypes, PlannedOrder, PlannedTop}
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons, Shared}

/** Lets a pipeline emit only the first rows of each task, if Spark takes the first of all rows.
  *
  * Spark's operator stays in the plan, so the pipeline may emit other rows as well: it emits all rows if Spark's own
  * joins run instead. Adaptive execution applies this rule right after planning a query, so that the first plan already
  * shows the result. Without adaptive execution, the rule is one of [[ColumnarRules]].
  */
object TopRows extends PhysicalRule("top") {

  /** Why a pipeline emits all rows although Spark takes the first ones. */
  val Declined: TreeNodeTag[String] = TreeNodeTag[String]("sparkext.top")

  private val MostRows = Shared[Int]("most_top_rows")

  /** If the query skips some of the first rows (OFFSET), the limit of Spark's operator includes them. */
  override protected def changed(plan: SparkPlan): SparkPlan = plan.transformUp {
    case top: TakeOrderedAndProjectExec => top.withNewChildren(Seq(limited(top.child, top.limit, Right(top.sortOrder))))
  }

  /** `order`: the order of the rows of `plan`, or the reason why it is unknown below some operator. */
  private def limited(plan: SparkPlan, count: Int, order: Either[String, Seq[SortOrder]]): SparkPlan = plan match {
    case pipeline: PipelinedJoinExec if pipeline.grouping.isEmpty && pipeline.top.isEmpty =>
      order.flatMap(planned(count, _, pipeline.output)) match {
        case Right(top) => pipeline.as(pipeline.copy(top = Some(top)))
        case Left(reason) =>
          pipeline.setTagValue(Declined, reason)
          pipeline
      }
    case ProjectExec(columns, child) =>
      plan.withNewChildren(Seq(limited(child, count, order.flatMap(below(columns, _)))))
    case FilterExec(_, child) =>
      plan.withNewChildren(Seq(limited(child, count, Left(Reason("TOP_FILTER_OF_SPARK")))))
    case other => other
  }

  /** The order in terms of the input of a projection. Computed columns must not fail on rows that are not among the
    * first.
    */
  private def below(columns: Seq[NamedExpression], order: Seq[SortOrder]): Either[String, Seq[SortOrder]] = {
    val computed = AttributeMap(columns.collect { case alias @ Alias(value, _) => alias.toAttribute -> value })
    val unfit = computed.values.find(value => Trees.isDeep(value) || Failing.may(value) || !value.deterministic)
    unfit.map(value => Reason("TOP_COLUMN_MAY_FAIL", Wording.of(value))).toLeft(order.map {
      by =>
        by.child match {
          case column: Attribute => by.copy(child = computed.getOrElse(column, column))
          case _ => by
        }
    })
  }

  private def planned(count: Int, order: Seq[SortOrder], output: Seq[Attribute]): Either[String, PlannedTop] = {
    def column(by: SortOrder): Either[String, PlannedOrder] = {
      val number = output.indexWhere(column => by.child.isInstanceOf[Attribute] && by.child.semanticEquals(column))
      if (number < 0) Left(Reason("ORDERED_BY_COMPUTED_VALUE", Wording.of(by.child)))
      else if (!KeyTypes.isOrdered(by.dataType)) {
        Left(Reason("ORDERED_TYPE", by.dataType.simpleString, Wording.of(by.child)))
      } else Right(PlannedOrder(number, by.direction == Ascending, by.nullOrdering == NullsFirst))
    }
    for {
      _ <- Reasons.check(count >= 1 && count <= MostRows, Reason("TOO_MANY_TOP_ROWS", MostRows))
      columns <- Reasons.all(order.map(column))
    } yield PlannedTop(
      count,
      columns,
      s"$count by ${order.map(described).mkString("[", ", ", "]")}")
  }

  private def described(by: SortOrder): String = s"${Wording.of(by.child)} ${by.direction.sql} ${by.nullOrdering.sql}"
}
