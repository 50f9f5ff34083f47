package org.apache.spark.sql.sparkext.joins

import scala.collection.mutable

import org.json4s.JsonAST.JValue

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.{ProjectExec, SparkPlan}
import org.apache.spark.sql.sparkext.exec.{Parts, RuntimeFallback}
import org.apache.spark.sql.sparkext.expressions.{Failing, PairCondition, Widened, Wording, WorkerEvaluator}
import org.apache.spark.sql.sparkext.groups.{GroupedRows, PlannedGroups}
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons, Redaction, Settings}
import org.apache.spark.sql.sparkext.scan.FusedScan
import org.apache.spark.sql.sparkext.shuffle.Exchange

/** The positions of all columns in a pipeline: the columns that each source sends, and the columns that the pipeline
  * emits.
  *
  * `filter` holds for all emitted rows. With a `grouping`, groups of these rows are emitted instead. `otherwise`:
  * Spark's own joins with the same result, see [[RuntimeFallback]].
  */
case class ChainLayout(
    joins: Seq[PlannedJoin],
    outputs: Seq[Attribute],
    origins: Seq[ColumnRef],
    filter: Option[PlannedFilter],
    grouping: Option[PlannedGroups],
    parts: Option[Parts],
    exchange: Option[Exchange],
    otherwise: LogicalPlan,
    private val sources: Seq[(LogicalPlan, Seq[NamedExpression])]) {

  def probe(plan: LogicalPlan => SparkPlan): SparkPlan = child(sources.head, plan)

  def builds(plan: LogicalPlan => SparkPlan): Seq[SparkPlan] = sources.tail.map(child(_, plan))

  private def child(source: (LogicalPlan, Seq[NamedExpression]), plan: LogicalPlan => SparkPlan): SparkPlan = {
    val (logical, columns) = source
    val planned = plan(logical)
    if (columns == logical.output) planned else ProjectExec(columns, planned)
  }
}

object ChainLayout {

  /** Lay out a chain that emits the columns `wanted` of the rows that pass `filters`. Left if a key cannot be computed
    * before the join, or if workers do not evaluate a filter.
    */
  def of(
      chain: JoinChain,
      wanted: Seq[Attribute],
      filters: Seq[Expression],
      settings: Settings): Either[String, ChainLayout] = {
    val sources = new Sources(chain, wanted.map(chain.source), filters.map(chain.atSources), Nil, settings)
    for {
      joins <- sources.joins
      filter <- sources.filter
    } yield {
      val origins = wanted.map(attribute => sources.place(chain.source(attribute), 0))
      val columns = sources.columns
      val otherwise = RuntimeFallback.joins(chain, joins, columns, wanted, filters)
      ChainLayout(joins, wanted, origins, filter, None, sources.parts, sources.exchange, otherwise, columns)
    }
  }

  /** Lay out a chain whose rows are grouped. */
  def of(
      chain: JoinChain,
      grouped: GroupedRows,
      filters: Seq[Expression],
      settings: Settings): Either[String, ChainLayout] = {
    val atRows = grouped.grouping
    val grouping = atRows.copy(groupings = atRows.groupings.map(_.map(chain.atSources)))
    val sources = new Sources(chain, Nil, filters.map(chain.atSources), grouping.expressions, settings)
    for {
      joins <- sources.joins
      filter <- sources.filter
      spec <- grouping.spec(sources.place(_, 0))
    } yield {
      val columns = sources.columns
      val otherwise = grouped.over(RuntimeFallback.joins(chain, joins, columns, grouped.needed, filters))
      val formulas = grouping.expressions.map { expression =>
        if (Failing.may(expression)) Some(sources.formula(expression)) else None
      }
      val exchange = sources.exchange.map { by =>
        val partial = grouping.partial
        val keys = if (grouping.isExpanded) Nil else grouping.groupings.head.keys
        by.grouped(chain, keys, partial.groupingExpressions.map(_.toAttribute), partial.output)
      }
      val planned = PlannedGroups(
        spec,
        formulas,
        grouping.partial.output,
        grouping.described,
        grouping.isExpanded,
        grouping.partial)
      ChainLayout(
        joins,
        grouping.partial.output,
        Nil,
        filter,
        Some(planned),
        sources.parts,
        exchange,
        otherwise,
        columns)
    }
  }

  /** `filters` and `computed` are the expressions that workers evaluate on rows that have passed all joins. */
  private class Sources(
      chain: JoinChain,
      outputs: Seq[Attribute],
      filters: Seq[Expression],
      computed: Seq[Expression],
      settings: Settings) {
    private val plans = chain.probe +: chain.stages.map(_.build)

    /** The columns that each source sends. Plain columns come first, in the order of their source, so that a source
      * that sends all of its columns needs no projection.
      */
    private val sent = {
      val keys = chain.stages.flatMap(stage => stage.probes.map(chain.atSources) ++ stage.indexed)
      val compared =
        chain.stages.flatMap(stage => stage.conditions ++ stage.guard).map(chain.atSources).flatMap(_.references)
      val evaluated = (filters ++ computed).flatMap(_.references)
      val plain = AttributeSet(outputs ++ compared ++ evaluated ++ keys.flatMap(Widened.unapply))
      plans.map(plan => mutable.ArrayBuffer.from[NamedExpression](plan.output.filter(plain.contains)))
    }
    private val flags: Map[ExprId, ColumnRef] = chain.stages.zipWithIndex.flatMap { case (stage, number) =>
      stage.existence.map(_.exprId -> ColumnRef(number + 1, 0))
    }.toMap

    /** The exchange of the partitioned joins. That these joins can share an exchange was checked when the chain was
      * made.
      */
    val exchange: Option[Exchange] = Exchange.of(chain, settings).toOption.flatten

    /** How the rows of the first join are partitioned, if it is a full outer join and not part of the exchange. */
    val parts: Option[Parts] = chain.stages.headOption.filter(_.full && exchange.isEmpty).map { stage =>
      val part = Parts.by(stage.keys.map(_.build), settings.parts).partitionIdExpression
      Parts(
        stage.keys.map(key => position(0, named(chain.atSources(key.probe)))),
        position(1, Alias(part, "part")()),
        settings.parts)
    }

    /** The columns that each source sends: those that keys and outputs need, at least one. */
    def columns: Seq[(LogicalPlan, Seq[NamedExpression])] = plans.zip(sent).map { case (plan, columns) =>
      plan -> (if (columns.isEmpty) Seq(Alias(Literal(0), "nothing")()) else columns.toSeq)
    }

    def joins: Either[String, Seq[PlannedJoin]] =
      Reasons.all(chain.stages.zipWithIndex.map { case (stage, number) => join(stage, number + 1) })

    /** All filters as one condition. */
    def filter: Either[String, Option[PlannedFilter]] = Failing.inTurn(filters) match {
      case Some(condition) => WorkerEvaluator.Arrow.of(condition, place(_, 0))
          .map(spec =>
            Some(PlannedFilter(
              spec,
              Some(formula(condition)).filter(_ => Failing.may(condition)),
              Wording.of(condition))))
          .left.map(part => Reason("GROUP_FILTER_OF_SPARK", part))
      case None => Right(None)
    }

    private def join(stage: JoinStage, source: Int): Either[String, PlannedJoin] = {
      def compared(comparison: StageComparison): Either[String, PlannedComparison] =
        for (probe <- reference(chain.atSources(comparison.probe), source)) yield PlannedComparison(
          probe,
          comparison.operator,
          indexed(source, comparison.build),
          keyType(comparison.build))
      // That workers cover the conditions was checked when the stage was made.
      def written(condition: Option[Expression], evaluator: WorkerEvaluator): Option[JValue] =
        condition.flatMap(part => evaluator.of(chain.atSources(part), place(_, source)).toOption)
      for {
        keys <- Reasons.all(stage.keys.map(compared))
        ranges <- Reasons.all(stage.ranges.map(compared))
        asOf <- Reasons.all(stage.asOf.toSeq.map { near =>
          for (probe <- reference(chain.atSources(near.probe), source)) yield PlannedAsOf(
            probe,
            indexed(source, near.build),
            keyType(near.build),
            near.direction,
            near.exact,
            near.tolerance)
        })
      } yield PlannedJoin(
        stage.kind,
        keys,
        ranges,
        asOf.headOption,
        written(stage.condition, WorkerEvaluator.Arrow),
        written(stage.theta, WorkerEvaluator.Compiled),
        written(stage.guard, WorkerEvaluator.Compiled),
        stage.formula.filter(Failing.may).map(pairCondition(_, stage, source)),
        label(stage),
        stage.hint.flatMap(_.algorithm).getOrElse(settings.algorithm),
        isProbeOrdered(stage),
        stage.hint.flatMap(_.maxBytes).getOrElse(settings.maxBuildBytes)
      )
    }

    private def keyType(key: Expression): String = KeyTypes.name(key.dataType).get

    /** Whether probe rows are ordered by the only key. No stage changes their order. */
    private def isProbeOrdered(stage: JoinStage): Boolean = stage.keys match {
      case Seq(key) if settings.fusesScans && exchange.isEmpty =>
        Widened.unapply(chain.atSources(key.probe)).exists { column =>
          chain.probe.outputSet.contains(column) && FusedScan.isOrdered(chain.probe, column)
        }
      case _ => false
    }

    /** A formula over pairs, with the nullability that its columns have in the inputs of the join: not null if a filter
      * there ensures it.
      */
    private def pairCondition(formula: Expression, stage: JoinStage, source: Int): PairCondition =
      PairCondition(
        formula,
        Seq(stage.probe, stage.build).flatMap(Failing.receivedColumns).filter(formula.references.contains).map {
          column =>
            column -> place(chain.source(column), source)
        }
      )

    /** A formula over rows that have passed all joins. */
    def formula(expression: Expression): PairCondition =
      PairCondition(expression, expression.references.toSeq.map(column => column -> place(column, 0)))

    /** The position of a column for join number `join`, counted from 1, or, if `join` is 0, for the operators after all
      * joins.
      *
      * A subquery that Spark copies keeps the ids of its columns, so several sources may have the same ids. Columns of
      * a build side that the join does not emit are visible to that join only.
      */
    def place(attribute: Attribute, join: Int): ColumnRef = flags.getOrElse(
      attribute.exprId, {
        val source = (join +: plans.indices.filterNot(isHidden)).find(plans(_).outputSet.contains(attribute)).get
        ColumnRef(source, position(source, attribute))
      }
    )

    private def isHidden(source: Int): Boolean = source > 0 && !chain.stages(source - 1).emitsBuild

    /** The number of the build side's column that is indexed. Workers widen integers themselves. */
    private def indexed(source: Int, key: Expression): Int =
      position(source, Widened.unapply(key).getOrElse(named(key)))

    /** The position of a probe key. A computed key is computed by a single source, which has all columns that it needs.
      */
    private def reference(key: Expression, before: Int): Either[String, ColumnRef] = key match {
      case Widened(column) => Right(place(column, 0))
      case computed =>
        val source = (0 until before).indexWhere { number =>
          !isHidden(number) && computed.references.subsetOf(plans(number).outputSet)
        }
        if (source < 0) Left(Reason("KEY_OF_SEVERAL_TABLES", Wording.of(computed)))
        else if (source == 0 && before > 1 && chain.stages.head.full) {
          Left(Reason("KEY_AFTER_FULL_JOIN", Wording.of(computed)))
        } else if (source > 0 && chain.stages(source - 1).outer) {
          Left(Reason("KEY_AFTER_OUTER_JOIN", Wording.of(computed)))
        } else Right(ColumnRef(source, position(source, named(computed))))
    }

    private def named(expression: Expression): NamedExpression = expression match {
      case attribute: Attribute => attribute
      case computed => Alias(computed, "key")()
    }

    /** The column's number among those that the source sends. A new column is added. */
    private def position(source: Int, column: NamedExpression): Int = {
      val columns = sent(source)
      val known = columns.indexWhere {
        case attribute: Attribute => attribute.semanticEquals(column.toAttribute)
        case Alias(child, _) => column match {
            case Alias(other, _) => child.semanticEquals(other)
            case _ => false
          }
        case _ => false
      }
      if (known >= 0) known
      else {
        columns += column
        columns.length - 1
      }
    }

    private def label(stage: JoinStage): String = {
      val near =
        stage.asOf.map(near => s"${near.direction} as of ${Wording.of(near.probe)} ~ ${Wording.of(near.build)}")
      Redaction.redacted(
        (near ++ (stage.keys ++ stage.ranges).map(_.described) ++ stage.conditions.map(Wording.of)).mkString(" AND "))
    }
  }
}
