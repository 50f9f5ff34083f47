package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.catalyst.plans.LeftSemi
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.types.{DecimalType, DoubleType, FloatType}

/** Groups that workers make for a build side are made of those rows alone whose key another join of the chain lets pass:
  *
  * {{{
  *   probe ⋈ few (p = f) ⋈ γ k (many) (p = k)    ▶    probe ⋈ few ⋈ γ k (many ⋉ few (k = f))
  * }}}
  *
  * A row of another key would only meet probe rows that the other join drops (Mumick and Pirahesh, "Implementation of magic-sets in a
  * relational database system", SIGMOD 1994). Where its group might have failed, it is made.
  */
object Reductions {

  /** The chain with its build sides reduced. */
  def of(chain: JoinChain, settings: Settings): JoinChain =
    if (settings.mode != "auto") chain
    else Guarded("reduction")(chain.copy(stages = chain.stages.map(reduced(_, chain, settings)))).getOrElse(chain)

  private def reduced(stage: JoinStage, chain: JoinChain, settings: Settings): JoinStage = {
    val found = for {
      own <- stage.keys.iterator if stage.asOf.isEmpty && !own.nullSafe
      other <- chain.stages if (other ne stage) && drops(other, settings)
      key <- other.keys if !key.nullSafe && areEqual(key, chain.atSources(own.probe), chain)
      build <- below(stage.build, own.build, other.build, key.build)
      smaller = stage.copy(build = build)
      if OwnPipelines.expected(smaller, settings).isDefined
    } yield smaller
    found.nextOption().getOrElse(stage)
  }

  /** Whether `probe` equals this key of another join in all rows that pass that one. */
  private def areEqual(key: StageKey, probe: Expression, chain: JoinChain): Boolean =
    Seq(key.probe, key.build).exists(chain.atSources(_).semanticEquals(probe))

  /** Whether a join drops most rows, as workers find by few rows that they read. */
  private def drops(stage: JoinStage, settings: Settings): Boolean =
    (stage.kind == "inner" || stage.kind == "semi") && stage.asOf.isEmpty && Estimates.kept(stage.build) <= FewKept &&
      FusedScan.expected(stage.build, stage.build.output, settings).isDefined

  private val FewKept = 0.3
  private val Larger = 10.0

  /** `plan`, whose groups are made of rows of which the column that becomes `key` is among the `other` plan's. */
  private def below(plan: LogicalPlan, key: Expression, other: LogicalPlan, otherKey: Expression): Option[LogicalPlan] =
    (plan, key) match {
      case (Project(columns, child), column: Attribute) =>
        for {
          source <- columns.find(_.exprId == column.exprId)
          reduced <- below(child, Expressions.unnamed(source), other, otherKey)
        } yield Project(columns, reduced)
      case (Filter(condition, child), column) if !Failing.may(condition) =>
        below(child, column, other, otherKey).map(Filter(condition, _))
      case (aggregate: Aggregate, column: Attribute) if neverFails(aggregate) =>
        for {
          source <- aggregate.aggregateExpressions.find(_.exprId == column.exprId).map(Expressions.unnamed)
          if aggregate.groupingExpressions.exists(_.semanticEquals(source)) && source.isInstanceOf[Attribute]
          if !aggregate.child.exists(_.sameResult(other)) // Spark may have put it there
          if Estimates.rows(aggregate.child) >= Larger * Estimates.rows(other) && Estimates.whole(aggregate.child) < MostSummed
        } yield {
          val twin = Alias(otherKey, "key")()
          val rows = Join(aggregate.child, Project(Seq(twin), other), LeftSemi, Some(EqualTo(source, twin.toAttribute)), JoinHint.NONE)
          Aggregate(aggregate.groupingExpressions, aggregate.aggregateExpressions, rows)
        }
      case _ => None
    }

  /** Whether no group can fail that is left out. */
  private def neverFails(aggregate: Aggregate): Boolean =
    (aggregate.groupingExpressions ++ aggregate.aggregateExpressions.map(Expressions.unnamed)).forall { expression =>
      val calls = expression.collect { case call: AggregateExpression => call }
      val values = expression.transform { case call: AggregateExpression => AttributeReference("value", call.dataType)() }
      calls.forall(neverFails) && !Failing.may(values)
    }

  private def neverFails(call: AggregateExpression): Boolean =
    (call.aggregateFunction.children ++ call.filter).forall(!Failing.may(_)) && (call.aggregateFunction match {
      case _: Count | _: Min | _: Max => true
      case sum: Sum => holdsAll(sum.child)
      case mean: Average => holdsAll(mean.child)
      case _ => false
    })

  /** Whether a sum has room for all values there may be: of decimals it has ten digits more than each. A tenth of the rows for which
    * that is enough leaves room for those that joins make.
    */
  private def holdsAll(value: Expression): Boolean = value.dataType match {
    case FloatType | DoubleType => true
    case decimal: DecimalType => decimal.precision + SumDigits <= DecimalType.MAX_PRECISION
    case _ => false
  }

  private val SumDigits = 10
  private val MostSummed = 1e9
}
