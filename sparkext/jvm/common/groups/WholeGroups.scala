package org.apache.spark.sql.sparkext.groups

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.expressions.aggregate.{DeclarativeAggregate, Final}
import org.apache.spark.sql.catalyst.plans.logical.Aggregate
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec
import org.apache.spark.sql.sparkext.expressions.{Expressions, Trees, Wording}
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons, Settings}
import org.apache.spark.sql.sparkext.shim.SparkShim

/** An aggregate that workers finish: `results` are computed from the keys and buffers of complete groups, as in Spark's
  * final aggregate, which emits `output`.
  */
case class WholeGroups(rows: GroupedRows, results: Seq[NamedExpression], output: Seq[Attribute])

object WholeGroups {

  /** The aggregate as Spark plans it, if that is a partial and a final aggregate; or the reason why workers do not
    * finish it.
    */
  def of(aggregate: Aggregate, settings: Settings): Either[String, WholeGroups] = for {
    _ <- Trees.check(aggregate)
    planned <- SparkShim.planner(SparkSession.active).Aggregation(aggregate).headOption.toRight(Reason("NO_PLAN"))
    last <-
      Some(planned).collect { case last: BaseAggregateExec => last }.toRight(Reason("NO_PARTIAL_AGGREGATION"))
    rows <- GroupedRows.of(planned, settings)
    _ <- Reasons.check(last.child eq rows.grouping.partial, Reason("AGGREGATE_STEPS"))
    values <- valuesOf(last)
    results = last.resultExpressions.map(Expressions.replacing(values)(_).asInstanceOf[NamedExpression])
    _ <- Reasons.all(results.map(Expressions.deferrable))
  } yield WholeGroups(rows, results, last.output)

  /** The expression of each function's value over its buffers, as the partial aggregate emits them. */
  private def valuesOf(last: BaseAggregateExec): Either[String, AttributeMap[Expression]] =
    Reasons.all(last.aggregateExpressions.zip(last.aggregateAttributes).map { case (call, attribute) =>
      call.aggregateFunction match {
        case function: DeclarativeAggregate if call.mode == Final && function.deterministic =>
          val emitted = AttributeMap(function.aggBufferAttributes.zip(function.inputAggBufferAttributes))
          Right(attribute -> Expressions.replacing(emitted)(function.evaluateExpression))
        case other => Left(Reason("AGGREGATE_OF_SPARK", Wording.of(other)))
      }
    }).map(AttributeMap(_))
}
