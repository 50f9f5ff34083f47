package org.apache.spark.sql.sparkext.planning

import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.execution.{FilterExec, ProjectExec, SparkPlan, SparkStrategy}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sparkext.exec.{
  DeclinedJoinExec,
  PipelinedJoinExec,
  RuntimeFallback,
  SourceRows,
  SourceRowsExec
}
import org.apache.spark.sql.sparkext.expressions.{Expressions, Failing, Trees, Wording, WorkerEvaluator}
import org.apache.spark.sql.sparkext.groups.{GroupedRows, Groups, WholeGroups, WholeGroupsExec}
import org.apache.spark.sql.sparkext.joins.{Acceptance, ChainLayout, Estimates, FileFunctions, JoinChain, OwnPipelines}
import org.apache.spark.sql.sparkext.protocol.{PipelineRuns, Reason, Reasons, Redaction, Settings}
import org.apache.spark.sql.sparkext.scan.ParquetFiles
import org.apache.spark.sql.sparkext.shim.SparkShim

/** Plans chains of supported joins as one operator each, with the partial aggregate above them, and adds a note with
  * the reason to joins that it declines.
  *
  * Spark calls this strategy before its own strategies, which plan the declined joins unchanged.
  */
class PipelinedJoinStrategy(session: SparkSession) extends SparkStrategy with Logging {

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case ReturnAnswer(whole) => // the root of every plan, including replanned ones of adaptive execution
      if (Guarded("files")(FileFunctions.mark(whole)).isLeft) FileFunctions.markAll(whole)
      Guarded("sizes")(Estimates.begin(whole))
      Guarded("costs")(OwnPipelines.begin(whole))
      if (whole.exists(_.isInstanceOf[Join]) && settings.exists(looksAhead))
        Guarded("footers")(ParquetFiles.lookAhead(whole))
      Nil
    case SourceRows(number, _, _, Some(rows)) => Seq(SourceRowsExec(number, rows))
    case aggregate: Aggregate if RuntimeFallback.runs(aggregate) => Nil
    case aggregate: Aggregate =>
      unlessOff(settings => whole(aggregate, settings).map(Seq(_)).getOrElse(grouped(aggregate, settings)))
    case Pruned(_, _, join) if RuntimeFallback.runs(join) => Nil
    case join: Join if RuntimeFallback.runs(join) => Nil
    case Pruned(columns, conditions, join) =>
      unlessOff(settings => pipelined(join, columns, conditions, settings).toSeq)
    case join: PipelinedAsOf => Seq(certain(join))
    case join: Join => settings.map(pipelinedOrNoted(join, _)).getOrElse(Nil)
    case _ => Nil
  }

  private def unlessOff(planned: Settings => Seq[SparkPlan]): Seq[SparkPlan] =
    settings.filterOrElse(_.mode != "off", "").map(planned).getOrElse(Nil)

  private def pipelinedOrNoted(join: Join, settings: Settings): Seq[SparkPlan] =
    if (settings.mode == "off") settings.unreadableMode.toSeq.flatMap(noted(join, _, settings))
    else pipelined(join, join.output, Nil, settings).fold(why => noted(join, settings.explained(why), settings), Seq(_))

  /** Whether estimates decide which joins are planned. */
  private def looksAhead(settings: Settings): Boolean = settings.mode == "auto" && settings.hintedOnly.isEmpty

  private def settings: Either[String, Settings] = Guarded("settings")(new Settings(SQLConf.get))

  /** Plans an as-of join that was replaced: on its own if it cannot be part of a chain, and by Spark's plan if that
    * fails, too.
    */
  private def certain(join: PipelinedAsOf): SparkPlan = {
    val planned = for {
      settings <- settings
      operator <- pipelined(join, join.output, Nil, settings).orElse(Guarded.either("join") {
        val chain = JoinChain.single(join.stage)
        ChainLayout.of(chain, join.output, Nil, settings).map(operator(_, chain, chain.key, settings))
      })
    } yield operator
    planned.fold(reason => DeclinedJoinExec(Redaction.redacted(reason), sparks(join)), identity)
  }

  /** Spark's plan for an as-of join. Adaptive execution finds no logical counterparts of its operators, so their tags
    * are removed, and they count as parts of the join.
    */
  private def sparks(join: PipelinedAsOf): SparkPlan = {
    val columns = join.undone.output.map(column => Alias(column, column.name)())
    val logical = SparkShim.optimizer(session).execute(Project(columns, join.undone))
    val physical = SparkShim.planner(session).plan(logical).next()
    physical.foreach { operator =>
      operator.unsetTagValue(SparkPlan.LOGICAL_PLAN_TAG)
      operator.unsetTagValue(SparkPlan.LOGICAL_PLAN_INHERITED_TAG)
    }
    ProjectExec(
      physical.output.zip(join.output).map { case (found, column) =>
        Alias(found, column.name)(exprId = column.exprId)
      },
      physical)
  }

  /** The chain below `join` as one operator, with the filters and columns that the plan requires above it; or the
    * reason why not.
    */
  private def pipelined(
      join: LogicalPlan,
      columns: Seq[NamedExpression],
      conditions: Seq[Expression],
      settings: Settings): Either[String, SparkPlan] = Guarded.either("join")(for {
    _ <- Trees.check(join)
    _ <- Reasons.check(!columns.exists(Trees.isDeep), Reason("COLUMN_TOO_DEEP"))
    _ <- Reasons.all(conditions.map(Expressions.deferrable))
    chain <- JoinChain.of(join, settings)
    _ <- accepted(chain, None, Some(join).filter(_.getTagValue(OwnPipelines.Marked).isDefined), settings)
    // The lowest filter first, as in Spark: a filter that is false or null for a row may keep the next filter from
    // dividing by zero.
    filters = (conditions ++ chain.filters).reverse
    (within, above) = split(filters)
    wanted = (columns ++ above).flatMap(_.references).distinctBy(_.exprId)
    layout <- ChainLayout.of(chain, wanted, within, settings)
  } yield {
    val joined = operator(layout, chain, chain.key, settings)
    join.getTagValue(GroupedRows.Declined).foreach(joined.setTagValue(GroupedRows.Declined, _))
    val levels = if (above.exists(Failing.may)) above else above.reduceOption(And).toSeq
    val filtered = levels.foldLeft(joined)((below, filter) => FilterExec(filter, below))
    if (columns == filtered.output) filtered else ProjectExec(columns, filtered)
  })

  /** The filters that workers apply, and the filters that are left to Spark. A filter that may fail stays in its place,
    * and so do all filters above it.
    */
  private def split(filters: Seq[Expression]): (Seq[Expression], Seq[Expression]) = {
    val (safe, others) = filters.flatMap(Trees.conjuncts).span(!Failing.may(_))
    val (within, above) = safe.partition(WorkerEvaluator.Arrow.covers)
    (within, above ++ others)
  }

  private def accepted(
      chain: JoinChain,
      grouping: Option[Groups],
      build: Option[LogicalPlan],
      settings: Settings): Either[String, Unit] = for {
    _ <- Acceptance.chain(chain, grouping, build, settings)
    _ <- Acceptance.files(session.sparkContext)
    _ <- Acceptance.workers
    _ <- Acceptance.rows(chain)
  } yield ()

  /** An aggregate that workers finish, as the source of a pipeline without joins; None if they do not. */
  private def whole(aggregate: Aggregate, settings: Settings): Option[SparkPlan] =
    if (OwnPipelines.source(aggregate, settings).isEmpty) None
    else Guarded.either("aggregate") {
      val chain = JoinChain.scan(aggregate)
      for {
        _ <- accepted(chain, None, None, settings)
        groups <- finished(aggregate, settings).toRight(Reason("NOT_WHOLE_GROUPS"))
        layout <- ChainLayout.of(chain, aggregate.output, Nil, settings)
        key = aggregate.groupingExpressions.map(Wording.of).mkString("[", ", ", "]")
      } yield operator(layout, chain, key, settings, _ => groups)
    }.toOption

  /** Spark's plan for an aggregate, in which workers compute the partial aggregate; empty if they do not. */
  private def grouped(aggregate: Aggregate, settings: Settings): Seq[SparkPlan] = {
    val planned = Guarded("aggregate")(SparkShim.planner(session).Aggregation(aggregate)).getOrElse(Nil)
    val found = planned.headOption.toRight(Reason("NO_PLAN")).flatMap { operators =>
      Guarded.either("aggregate")(for {
        _ <- Trees.check(aggregate)
        rows <- GroupedRows.of(operators, settings)
        pipeline <- pipelined(rows, None, settings)
      } yield operators.transformUp { case partial if partial eq rows.grouping.partial => pipeline })
    }
    found.fold(
      reason => {
        GroupedRows.note(aggregate, Redaction.redacted(reason))
        Nil
      },
      Seq(_))
  }

  private def pipelined(
      rows: GroupedRows,
      build: Option[LogicalPlan],
      settings: Settings): Either[String, SparkPlan] = Guarded.either("join")(for {
    chain <- rows.chain(settings)
    _ <- accepted(chain, Some(rows.grouping), build, settings)
    filters = chain.filters.reverse ++ rows.filters.reverse
    layout <- ChainLayout.of(chain, rows, filters, settings)
    // With the key of its joins, reports of a DataFrame include this pipeline if an action groups the rows of the
    // joins.
  } yield operator(layout, chain, if (rows.isScan) rows.grouping.described else chain.key, settings))

  private def operator(layout: ChainLayout, chain: JoinChain, key: String, settings: Settings): SparkPlan =
    operator(layout, chain, key, settings, plan => source(plan, settings).getOrElse(planLater(plan)))

  private def operator(
      layout: ChainLayout,
      chain: JoinChain,
      key: String,
      settings: Settings,
      probe: LogicalPlan => SparkPlan): SparkPlan = {
    val own = OwnPipelines.of(chain, settings)
    val operator = PipelinedJoinExec(
      layout.probe(probe),
      layout.builds(plan => (if (own.exists(_ eq plan)) finished(plan, settings) else None).getOrElse(planLater(plan))),
      layout.joins,
      layout.outputs,
      layout.origins,
      layout.filter,
      layout.grouping,
      layout.parts,
      layout.exchange,
      layout.otherwise
    )
    operator.setTagValue(PipelineRuns.Key, key)
    operator
  }

  /** A probe side that workers materialise before any task reads it. */
  private def source(plan: LogicalPlan, settings: Settings): Option[SparkPlan] =
    OwnPipelines.source(plan, settings).flatMap(_ => finished(plan, settings))

  /** An aggregate that workers finish, below operators that only filter and compute its rows. */
  private def finished(plan: LogicalPlan, settings: Settings): Option[SparkPlan] = plan match {
    case Project(columns, child) => finished(child, settings).map(ProjectExec(columns, _))
    case Filter(condition, child) => finished(child, settings).map(FilterExec(condition, _))
    case aggregate: Aggregate =>
      (for {
        whole <- Guarded.either("aggregate")(WholeGroups.of(aggregate, settings))
        pipeline <- pipelined(whole.rows, Some(aggregate), settings)
      } yield WholeGroupsExec(whole.results, whole.output, pipeline, aggregate)).toOption
    case _ => None
  }

  /** Spark's own plan for a join, with the reason as a note above it. Empty if another engine replaces Spark's
    * operators, because the engine supports no notes, and would not replace the operators above one. The join is then
    * left to Spark without a note in the plan.
    */
  private def noted(join: Join, why: String, settings: Settings): Seq[SparkPlan] = {
    val reason = Redaction.redacted(why)
    if (!isNoted(join, reason, settings)) Nil
    else if (settings.engine.isEmpty) sparks(join).map(DeclinedJoinExec(reason, _))
    else {
      join.setTagValue(Guarded.DeclinedJoin, reason)
      Nil
    }
  }

  /** Whether to note why the join is Spark's: in hint mode for hinted joins only. The reason is logged, too, if the
    * settings require it.
    */
  private def isNoted(join: Join, reason: String, settings: Settings): Boolean = Guarded("note") {
    val hinted = Seq(join.hint.leftHint, join.hint.rightHint).exists(PipelinedJoinHint.in(_).isDefined)
    val noted = hinted || settings.mode != "hint" || settings.force
    if (noted && settings.explainFallback) {
      val place = Redaction.redacted(join.simpleString(SQLConf.get.maxToStringFields))
      logWarning(s"Spark's own join runs instead of a pipeline: $reason; at $place")
    }
    noted
  }.getOrElse(false)

  /** Spark's own plan for the join. */
  private def sparks(join: Join): Seq[SparkPlan] =
    SparkShim.planner(session).strategies.iterator
      .filterNot(_.isInstanceOf[PipelinedJoinStrategy])
      .map(_(join))
      .find(_.nonEmpty)
      .getOrElse(Nil)
}

/** A join below an optional filter and an optional projection: columns that are not required need not be returned from
  * Python.
  */
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
