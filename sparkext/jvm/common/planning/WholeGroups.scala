package org.apache.spark.sql.sparkext

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.expressions.aggregate.{DeclarativeAggregate, Final}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, LogicalPlan}
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec

/** An aggregate as workers finish it: `results` are computed of the keys and buffers of whole groups, as Spark's final aggregate
  * does, which emits `output`.
  */
case class WholeGroups(rows: GroupedRows, results: Seq[NamedExpression], output: Seq[Attribute])

object WholeGroups {

  /** What Spark plans of the aggregate, if that is a partial one and a final one; or why workers do not finish it. */
  def of(aggregate: Aggregate, settings: Settings): Either[String, WholeGroups] = for {
    _ <- JoinStage.check(!Trees.isDeeper[LogicalPlan](aggregate, Trees.DeepestPlan), "a plan nested too deeply")
    planned <- SparkShim.planner(SparkSession.active).Aggregation(aggregate).headOption.toRight("no plan")
    last <- Some(planned).collect { case last: BaseAggregateExec => last }.toRight("an aggregate that Spark does not compute in parts")
    rows <- GroupedRows.of(planned, settings)
    _ <- JoinStage.check(last.child eq rows.grouping.partial, "an aggregate of more than two parts")
    values <- valuesOf(last)
    results = last.resultExpressions.map(Expressions.replacing(values)(_).asInstanceOf[NamedExpression])
    _ <- results.map(Expressions.deferrable).collectFirst { case Left(reason) => reason }.toLeft(())
  } yield WholeGroups(rows, results, last.output)

  /** What each function's value is computed of: its buffers, as the partial aggregate emits them. */
  private def valuesOf(last: BaseAggregateExec): Either[String, AttributeMap[Expression]] = {
    val found = last.aggregateExpressions.zip(last.aggregateAttributes).map { case (call, attribute) =>
      call.aggregateFunction match {
        case function: DeclarativeAggregate if call.mode == Final && function.deterministic =>
          val emitted = AttributeMap(function.aggBufferAttributes.zip(function.inputAggBufferAttributes))
          Right(attribute -> Expressions.replacing(emitted)(function.evaluateExpression))
        case other => Left(s"an aggregate that only Spark computes: ${Wording.of(other)}")
      }
    }
    found.collectFirst { case Left(reason) => reason }.toLeft(AttributeMap(found.flatMap(_.toOption)))
  }
}
