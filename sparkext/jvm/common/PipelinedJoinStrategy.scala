package org.apache.spark.sql.sparkext

import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.{FilterExec, ProjectExec, SparkPlan, SparkStrategy}
import org.apache.spark.sql.internal.SQLConf

/** Plans chains of supported joins as one operator each, and notes at every other join why it is not one.
  *
  * Spark asks this strategy before its own. What it declines is planned by those that follow, unchanged.
  */
class PipelinedJoinStrategy(session: SparkSession) extends SparkStrategy with Logging {

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case Pruned(columns, conditions, join) if conditions.forall(Expressions.deferrable(_).isRight) =>
      unlessOff(settings => pipelined(join, columns, conditions, settings).toSeq)
    case join: Join =>
      unlessOff { settings =>
        pipelined(join, join.output, Nil, settings) match {
          case Right(planned) => Seq(planned)
          case Left(reason) => declined(join, reason, settings)
        }
      }
    case _ => Nil
  }

  /** Settings are read for joins alone: were they for all plans, a bad one would refuse the `SET` that mends it. */
  private def unlessOff(planned: Settings => Seq[SparkPlan]): Seq[SparkPlan] = {
    val settings = new Settings(SQLConf.get)
    if (settings.mode == "off") Nil else planned(settings)
  }

  /** The chain below `join` as one operator, under what else the plan asks for; or why not. */
  private def pipelined(
      join: Join,
      columns: Seq[NamedExpression],
      conditions: Seq[Expression],
      settings: Settings): Either[String, SparkPlan] = for {
    chain <- JoinChain.of(join, stage => Acceptance.stage(stage, settings))
    _ <- Acceptance.chain(chain, settings)
    _ <- Acceptance.files(session.sparkContext)
    _ <- WorkerPython.of(settings).left.map(problem => s"no Python to run it: $problem")
    _ <- Acceptance.rows(chain)
    // The lowest first, as Spark applies them: one may keep the next from dividing by zero.
    filters = (conditions ++ chain.filters).reverse
    wanted = (columns ++ filters).flatMap(_.references).distinctBy(_.exprId)
    layout <- ChainLayout.of(chain, wanted, settings)
  } yield {
    val operator = PipelinedJoinExec(
      layout.probe(planLater),
      layout.builds(planLater),
      layout.joins,
      layout.outputs,
      layout.origins,
      layout.parts)
    operator.setTagValue(PipelineRuns.Key, chain.key)
    val filtered = filters.reduceOption(And).map(FilterExec(_, operator)).getOrElse(operator)
    if (columns == filtered.output) filtered else ProjectExec(columns, filtered)
  }

  /** Spark's own plan for the join, under a note with the reason. In hint mode only hinted joins are worth a note. */
  private def declined(join: Join, reason: String, settings: Settings): Seq[SparkPlan] = {
    val hinted = Seq(join.hint.leftHint, join.hint.rightHint).exists(PipelinedJoinHint.in(_).isDefined)
    if (settings.mode == "hint" && !hinted) Nil
    else {
      if (settings.explainFallback) {
        logWarning(s"Spark's own join instead of a pipelined one: $reason; at ${join.simpleString(SQLConf.get.maxToStringFields)}")
      }
      SparkShim.planner(session).strategies.iterator
        .filterNot(_.isInstanceOf[PipelinedJoinStrategy])
        .map(_(join))
        .find(_.nonEmpty)
        .getOrElse(Nil)
        .map(DeclinedJoinExec(reason, _))
    }
  }
}

/** A join under an optional filter and an optional projection: what is not asked for need not come back from Python. */
private object Pruned {
  def unapply(plan: LogicalPlan): Option[(Seq[NamedExpression], Seq[Expression], Join)] = plan match {
    case Project(columns, Filter(condition, join: Join)) => Some((columns, Seq(condition), join))
    case Project(columns, join: Join) => Some((columns, Nil, join))
    case Filter(condition, join: Join) => Some((join.output, Seq(condition), join))
    case _ => None
  }
}
