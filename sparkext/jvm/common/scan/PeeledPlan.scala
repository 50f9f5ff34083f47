package org.apache.spark.sql.sparkext.scan

import org.apache.spark.sql.catalyst.expressions.{AttributeMap, Expression}
import org.apache.spark.sql.execution._
import org.apache.spark.sql.sparkext.expressions.{Expressions, Trees}
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons}

/** The operator that produces the rows of a physical plan, below operators that only filter and compute them.
  *
  * `outputs` are the columns of the plan, and `filters` the conditions of each filter, which Spark tests together, from
  * the lowest filter up. Both refer to the output of `source`.
  */
case class PeeledPlan(source: SparkPlan, outputs: Seq[Expression], filters: Seq[Seq[Expression]]) {

  /** Rewrites an expression over the output of `plan`, whose columns are `outputs`, to the output of `source`. */
  private def atSource(plan: SparkPlan): Expression => Expression =
    Expressions.replacing(AttributeMap(plan.output.zip(outputs)))
}

object PeeledPlan {

  /** Left if an expression is nested too deeply, or with the reason for which `refused` excludes an operator above the
    * source.
    */
  def of(
      plan: SparkPlan,
      refused: PartialFunction[SparkPlan, Option[String]] = PartialFunction.empty): Either[String, PeeledPlan] =
    plan match {
      case WholeStageCodegenExec(child) => of(child, refused)
      case InputAdapter(child) => of(child, refused)
      case ColumnarToRowExec(child) => of(child, refused)
      case FilterExec(condition, child) =>
        val parts = Trees.conjuncts(condition)
        for {
          _ <- Reasons.check(!parts.exists(Trees.isDeep), Reason("FILTER_TOO_DEEP"))
          below <- of(child, refused)
          _ <- refused.lift(plan).flatten.toLeft(())
        } yield below.copy(filters = below.filters :+ parts.map(below.atSource(child)))
      case ProjectExec(columns, child) =>
        for {
          _ <- Reasons.check(!columns.exists(Trees.isDeep), Reason("COLUMN_TOO_DEEP"))
          below <- of(child, refused)
          _ <- refused.lift(plan).flatten.toLeft(())
        } yield below.copy(outputs = columns.map(Expressions.unnamed).map(below.atSource(child)))
      case source => Right(PeeledPlan(source, source.output, Nil))
    }

  /** The operator that produces the rows of `plan`. */
  @scala.annotation.tailrec
  def source(plan: SparkPlan): SparkPlan = plan match {
    case WholeStageCodegenExec(child) => source(child)
    case InputAdapter(child) => source(child)
    case FilterExec(_, child) => source(child)
    case ProjectExec(_, child) => source(child)
    case other => other
  }
}
