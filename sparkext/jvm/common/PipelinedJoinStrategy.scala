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
    case ReturnAnswer(whole) => // what every plan begins with, also those that adaptive execution makes anew
      FileFunctions.mark(whole)
      Nil
    case Pruned(columns, conditions, join) if conditions.forall(Expressions.deferrable(_).isRight) =>
      unlessOff(settings => pipelined(join, columns, conditions, settings).toSeq)
    case join: PipelinedAsOf => Seq(certain(join, new Settings(SQLConf.get)))
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

  /** An as-of join that was taken over, which no other strategy plans: on its own if it cannot be one of a chain. */
  private def certain(join: PipelinedAsOf, settings: Settings): SparkPlan =
    pipelined(join, join.output, Nil, settings)
      .orElse(ChainLayout.of(JoinChain.single(join.stage), join.output, settings).map(operator(_, JoinChain.single(join.stage).key)))
      .fold(reason => throw new IllegalStateException(s"an as-of join that no pipeline runs: $reason"), identity)

  /** The chain below `join` as one operator, under what else the plan asks for; or why not. */
  private def pipelined(
      join: LogicalPlan,
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
    val joined = operator(layout, chain.key)
    val filtered = filters.reduceOption(And).map(FilterExec(_, joined)).getOrElse(joined)
    if (columns == filtered.output) filtered else ProjectExec(columns, filtered)
  }

  private def operator(layout: ChainLayout, key: String): SparkPlan = {
    val operator = PipelinedJoinExec(
      layout.probe(planLater),
      layout.builds(planLater),
      layout.joins,
      layout.outputs,
      layout.origins,
      layout.parts)
    operator.setTagValue(PipelineRuns.Key, key)
    operator
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
  def unapply(plan: LogicalPlan): Option[(Seq[NamedExpression], Seq[Expression], LogicalPlan)] = plan match {
    case Project(columns, Filter(condition, Joining(join))) => Some((columns, Seq(condition), join))
    case Project(columns, Joining(join)) => Some((columns, Nil, join))
    case Filter(condition, Joining(join)) => Some((join.output, Seq(condition), join))
    case _ => None
  }

  private object Joining {
    def unapply(plan: LogicalPlan): Option[LogicalPlan] = plan match {
      case _: Join | _: PipelinedAsOf => Some(plan)
      case _ => None
    }
  }
}
