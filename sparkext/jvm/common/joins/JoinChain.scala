package org.apache.spark.sql.sparkext.joins

import scala.collection.mutable

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.sparkext.expressions.{Expressions, Failing}
import org.apache.spark.sql.sparkext.planning.PipelinedAsOf
import org.apache.spark.sql.sparkext.protocol.Settings
import org.apache.spark.sql.sparkext.shuffle.Exchange

/** A chain of joins below a plan node, flattened: the probe side at the bottom, and the stages in the order in which
  * rows pass them.
  *
  * `filters` are the conditions between the joins, and the conditions of joins that are applied as filters. All of them
  * may be applied above the last join, because no stage changes which columns a probe row contributes. `aliases` are
  * the renamed columns of the chain.
  */
case class JoinChain(
    probe: LogicalPlan,
    stages: Seq[JoinStage],
    filters: Seq[Expression],
    private val aliases: AttributeMap[Attribute]) {

  /** The expression in terms of the sources' own columns. */
  def atSources(expression: Expression): Expression = expression.transformUp { case attribute: Attribute =>
    source(attribute)
  }

  /** Identifies the joins of the chain, across all plans of one DataFrame. */
  def key: String =
    stages.map { stage =>
      val pairs = stage.keys.map(key => s"${key.probe}=${key.build}") ++
        stage.ranges.map(range => s"${range.probe}${range.operator}${range.build}") ++
        stage.theta.map(_.toString) ++ stage.asOf.map(_.toString)
      s"${stage.kind} ${pairs.mkString(",")}"
    }.mkString(";")

  def source(attribute: Attribute): Attribute = Expressions.origin(aliases)(attribute)
}

object JoinChain {

  /** Flatten the joins from `join` down its probe sides, as far as they are accepted as stages and the joins to be
    * partitioned can share an exchange.
    *
    * Left if `join` itself is not accepted.
    */
  def of(join: LogicalPlan, settings: Settings): Either[String, JoinChain] =
    for {
      top <- JoinStage.of(join)
      _ <- Acceptance.stage(top, settings)
      chain = new Flattening(settings).from(top)
      _ <- JoinStage.untransportable(chain.probe.output).toLeft(())
    } yield chain

  /** A chain of one stage. */
  def single(stage: JoinStage): JoinChain = JoinChain(stage.probe, Seq(stage), Nil, AttributeMap.empty[Attribute])

  /** A chain without stages: the rows of a scan, or of an aggregate that workers finish. */
  def scan(plan: LogicalPlan): JoinChain = JoinChain(plan, Nil, Nil, AttributeMap.empty[Attribute])

  private class Flattening(settings: Settings) {
    private val filters = mutable.ArrayBuffer.empty[Expression]
    private val aliases = mutable.ArrayBuffer.empty[(Attribute, Attribute)]

    def from(top: JoinStage): JoinChain = {
      val stages = mutable.ArrayBuffer(top)
      filters ++= top.filter
      var longest = so(stages)
      var next = below(top)
      while (next.isDefined) {
        val found = next.get
        stages += found.stage
        filters ++= found.filters ++ found.stage.filter
        aliases ++= found.aliases
        val chain = so(stages)
        if (Exchange.of(chain, settings).isRight) longest = chain
        next = below(found.stage)
      }
      longest
    }

    private def so(stages: mutable.ArrayBuffer[JoinStage]): JoinChain =
      JoinChain(stages.last.probe, stages.reverse.toSeq, filters.toSeq, AttributeMap(aliases.toSeq))

    private case class Below(stage: JoinStage, filters: Seq[Expression], aliases: Seq[(Attribute, Attribute)])

    /** The next join below as a stage of the same chain, if that changes no errors. The keys and formulas of `stage`
      * must not fail, because workers compute them for rows that Spark would drop before: in the next join, or in a
      * filter between the two. A filter from below must not fail either: it is applied after `stage`, which may drop
      * the rows on which the filter fails in Spark.
      */
    private def below(stage: JoinStage): Option[Below] = {
      val safe = stage.probes.forall(Expressions.neverFails) && !stage.formula.exists(Failing.may)
      if (stage.full || !safe) None
      else joinBelow(stage.probe).filterNot(found => (found.filters ++ found.stage.filter).exists(Failing.may))
    }

    /** The next join below, through operators that only drop, rename or filter columns and rows. */
    private def joinBelow(plan: LogicalPlan): Option[Below] = plan match {
      case _: Join | _: PipelinedAsOf =>
        JoinStage.of(plan).filterOrElse(Acceptance.stage(_, settings).isRight, "").toOption.map(Below(_, Nil, Nil))
      case Filter(condition, child) if Expressions.deferrable(condition).isRight =>
        joinBelow(child).map(below => below.copy(filters = condition +: below.filters))
      case Project(columns, child) =>
        val renamed = columns.collect { case alias @ Alias(column: Attribute, _) => alias.toAttribute -> column }
        if (renamed.length + columns.count(_.isInstanceOf[Attribute]) < columns.length) None
        else joinBelow(child).map(below => below.copy(aliases = renamed ++ below.aliases))
      case _ => None
    }
  }
}
