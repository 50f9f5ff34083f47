package org.apache.spark.sql.sparkext.groups

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.{PlanLater, SparkPlan}
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec
import org.apache.spark.sql.sparkext.expressions.{Expressions, Trees}
import org.apache.spark.sql.sparkext.joins.{JoinChain, OwnPipelines}
import org.apache.spark.sql.sparkext.planning.PipelinedAsOf
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons, Settings}
import org.apache.spark.sql.sparkext.scan.FusedScan

/** The rows that an aggregate groups: those of a chain of joins, of a scan alone, or of another aggregate alone, after
  * `filters`.
  *
  * `grouping` and `filters` refer to the columns of `rows`: all computations in between are substituted into them. If
  * Spark expands rows, `grouping` has one entry for each row to which a row is expanded. `whole` is the plan of the
  * aggregate's input, from `rows` upwards.
  */
case class GroupedRows(rows: LogicalPlan, filters: Seq[Expression], grouping: Groups, private val whole: LogicalPlan) {

  /** The plan of the aggregate's input over another plan with the same columns as `rows`. */
  def over(plan: LogicalPlan): LogicalPlan = whole.transformDown { case found if found eq rows => plan }

  /** The columns of `rows` that are used above. */
  def needed: Seq[Attribute] = {
    val looked = AttributeSet(between(whole).flatMap(_.references)) ++ grouping.partial.references
    rows.output.filter(looked.contains)
  }

  private def between(plan: LogicalPlan): Seq[LogicalPlan] =
    if (plan eq rows) Nil else plan +: plan.children.flatMap(between)

  def isScan: Boolean = !GroupedRows.isJoin(rows)

  /** The chain that produces the rows. */
  def chain(settings: Settings): Either[String, JoinChain] =
    if (isScan) Right(JoinChain.scan(rows)) else JoinChain.of(rows, settings)
}

object GroupedRows {

  /** The largest number of rows to which a row is expanded: the grouping sets of a CUBE of six columns. Each grouping
    * set is written to the work order that every task reads.
    */
  private val MostProjections = 64

  /** Why Spark groups the rows of a join, or of the pipeline that is planned for it. */
  val Declined: TreeNodeTag[String] = TreeNodeTag[String]("sparkext.groups")

  /** Stores the reason at the join whose rows an aggregate groups, if there is one. */
  def note(aggregate: Aggregate, reason: String): Unit = noteAt(aggregate.child, reason)

  @scala.annotation.tailrec
  private def noteAt(plan: LogicalPlan, reason: String): Unit = Trees.source(plan) match {
    case join if isJoin(join) => join.setTagValue(Declined, reason)
    case Expand(_, _, child) => noteAt(child, reason)
    case _ =>
  }

  /** The input of the lowest aggregate among these operators, which Spark has planned; or the reason why workers do not
    * group it.
    */
  def of(planned: SparkPlan, settings: Settings): Either[String, GroupedRows] = for {
    partial <- planned.collectFirst { case lowest: BaseAggregateExec if lowest.child.isInstanceOf[PlanLater] => lowest }
      .toRight(Reason("NO_PARTIAL_AGGREGATION"))
    below = partial.child.asInstanceOf[PlanLater].plan
    _ <- Reasons.check(!below.isStreaming, Reason("STREAMING_AGGREGATE"))
    peeled <- peel(below, settings)
    grouping <- Groups.of(partial)
    looked = AttributeSet(grouping.expressions.flatMap(_.references))
    _ <- Reasons.check(isJoin(peeled.rows) || looked.nonEmpty, Reason("NO_COLUMN_READ"))
    moved = Groups(partial, peeled.at.map(grouping.map))
    _ <- moved.expressions.find(Trees.isDeep).map(_ => Reason("EXPRESSION_TOO_DEEP")).toLeft(())
    _ <- Reasons.all(moved.expressions.map(Expressions.deferrable))
  } yield GroupedRows(peeled.rows, peeled.filters, moved, below)

  /** `at`: rewrites an expression over the plan's output to the columns of `rows`, one function for each time that rows
    * are expanded.
    */
  private case class Peeled(rows: LogicalPlan, filters: Seq[Expression], at: Seq[Expression => Expression])

  private def peel(plan: LogicalPlan, settings: Settings): Either[String, Peeled] = plan match {
    case rows if isJoin(rows) || isScan(rows, settings) => Right(Peeled(rows, Nil, Seq(identity)))
    case Project(columns, child) =>
      for {
        _ <- Reasons.all(columns.map(Expressions.deferrable))
        below <- peel(child, settings)
      } yield {
        val computed = AttributeMap(columns.collect { case alias @ Alias(value, _) => alias.toAttribute -> value })
        below.copy(at = below.at.map(Expressions.replacing(computed).andThen(_)))
      }
    case Expand(projections, output, child) =>
      for {
        _ <- Reasons.all(projections.flatten.map(Expressions.deferrable))
        below <- peel(child, settings)
        at = for (under <- below.at; projection <- projections)
          yield Expressions.replacing(AttributeMap(output.zip(projection))).andThen(under)
        _ <- Reasons.check(at.length <= MostProjections, Reason("TOO_MANY_GROUPING_SETS", MostProjections))
      } yield below.copy(at = at)
    case Filter(condition, child) =>
      for {
        _ <- Expressions.deferrable(condition)
        below <- peel(child, settings)
        _ <- Reasons.check(below.at.length == 1, Reason("GROUPING_SETS_FILTER"))
      } yield below.copy(filters = below.at.head(condition) +: below.filters)
    case other => Left(Reason("GROUPED_OPERATOR", other.nodeName))
  }

  private def isJoin(plan: LogicalPlan): Boolean = plan.isInstanceOf[Join] || plan.isInstanceOf[PipelinedAsOf]

  private def isScan(plan: LogicalPlan, settings: Settings): Boolean =
    FusedScan.expected(plan, plan.output, settings).isDefined || OwnPipelines.source(plan, settings).isDefined
}
