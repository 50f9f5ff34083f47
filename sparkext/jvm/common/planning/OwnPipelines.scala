package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.trees.TreeNodeTag

/** Which build sides are made by pipelines of their own, as far as can be told before there is a physical plan: chains of joins, and
  * aggregates, over files, under what only filters and computes their rows. And which aggregates workers finish for a pipeline whose
  * source they are.
  *
  * Whether a chain becomes a pipeline is asked at its upper join, where it is planned: it is marked as that of a build side.
  */
object OwnPipelines {

  /** Of the upper join of a chain whose rows a build side is made of. */
  val Marked: TreeNodeTag[Unit] = TreeNodeTag[Unit]("sparkext.build")

  /** Of an aggregate that workers were to finish, and do not. */
  val Sparks: TreeNodeTag[Unit] = TreeNodeTag[Unit]("sparkext.parts")

  /** They are asked at each level of the chain above. */
  private val known = new PlanMemo[Option[Costs]]("sparkext.costs")

  def begin(plan: LogicalPlan): Unit = known.begin(plan)

  /** What it costs to make a build side so; None where it is not. */
  def expected(stage: JoinStage, settings: Settings): Option[Costs] =
    if (stage.asOf.isDefined) None else Guarded("build side")(costs(stage.build, settings)).toOption.flatten

  /** What it costs to make the rows of an aggregate, under what only filters and computes them, before a pipeline takes them.
    *
    * Parts of groups go to Spark from every task, which is little where they are few, and most of the work where they are many:
    * these are finished in one place, if all tasks run there.
    */
  def source(plan: LogicalPlan, settings: Settings): Option[Costs] =
    Guarded("source") {
      for {
        aggregate <- aggregateBelow(plan)
        if settings.groups == "whole" || (settings.groups == "auto" && Acceptance.isOneNode && hasMany(aggregate, settings))
        made <- costs(plan, settings)
        if settings.hintedOnly.isEmpty || made.hasJoins
      } yield made
    }.toOption.flatten

  private def hasMany(aggregate: Aggregate, settings: Settings): Boolean =
    Estimates.groups(aggregate).exists(_ >= ManyGroups) && Estimates.bytes(aggregate) <= settings.maxBuildBytes.toDouble

  /** Groups of which each task makes a good part. Measured with TPC-H: 30,000 of 680,000 rows, of six tasks, take 1.1 instead of
    * 1.4 s, 600,000 of 18 million 1.2 instead of 3.5 s.
    */
  private val ManyGroups = 10000.0

  @scala.annotation.tailrec
  private def aggregateBelow(plan: LogicalPlan): Option[Aggregate] = plan match {
    case aggregate: Aggregate => Some(aggregate)
    case Project(_, child) => aggregateBelow(child)
    case Filter(_, child) => aggregateBelow(child)
    case _ => None
  }

  private def costs(plan: LogicalPlan, settings: Settings): Option[Costs] = known.of(plan)(reckoned(plan, settings))

  private def reckoned(plan: LogicalPlan, settings: Settings): Option[Costs] = plan match {
    case Project(columns, child) if columns.map(Expressions.unnamed).forall(isCovered) => costs(child, settings)
    case Filter(condition, child) if WorkerEvaluator.Arrow.covers(condition) => costs(child, settings)
    case join: Join => accepted(plan, JoinChain.of(join, settings), None, settings)
    case aggregate: Aggregate if aggregate.getTagValue(Sparks).isEmpty =>
      WholeGroups.of(aggregate, settings).toOption
        .filter(whole => (whole.results.map(Expressions.unnamed) ++ whole.rows.grouping.expressions).forall(isCovered))
        .flatMap(whole => accepted(plan, whole.rows.chain(settings), Some(whole.rows.grouping), settings))
    case _ => None
  }

  private def accepted(
      build: LogicalPlan,
      chain: Either[String, JoinChain],
      grouping: Option[Groups],
      settings: Settings): Option[Costs] =
    chain.toOption.map(new Costs(_, grouping, settings))
      .filter(costs => costs.isOwn && Acceptance.made(costs, build, settings).isRight)

  private def isCovered(column: Expression): Boolean = column match {
    case _: Attribute => true
    case computed => WorkerEvaluator.Arrow.covers(computed)
  }

  /** The build sides of a chain that are expected to be made so, marked for their own planning. */
  def of(chain: JoinChain, settings: Settings): Seq[LogicalPlan] = {
    val (own, others) = chain.stages.partition(expected(_, settings).isDefined)
    own.flatMap(stage => join(stage.build)).foreach(_.setTagValue(Marked, ()))
    others.flatMap(stage => join(stage.build)).foreach(_.unsetTagValue(Marked))
    own.map(_.build)
  }

  /** The upper join of the chain that gives `plan` its rows, if one does. */
  @scala.annotation.tailrec
  private def join(plan: LogicalPlan): Option[Join] = plan match {
    case join: Join => Some(join)
    case Project(_, child) => join(child)
    case Filter(_, child) => join(child)
    case _ => None
  }
}
