package org.apache.spark.sql.sparkext.joins

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.sparkext.expressions.{Expressions, Trees, WorkerEvaluator}
import org.apache.spark.sql.sparkext.groups.{Groups, WholeGroups}
import org.apache.spark.sql.sparkext.planning.{Guarded, PlanMemo}
import org.apache.spark.sql.sparkext.protocol.Settings

/** Decides, as far as possible before there is a physical plan, which build sides are derived by pipelines of their
  * own. Such a build side is a chain of joins, or an aggregate, over files, below operators that only filter and
  * compute its rows. Also decides which aggregates workers finish as the source of a pipeline.
  *
  * Whether a chain becomes a pipeline is decided when its upper join is planned. That join is marked if the chain is a
  * build side.
  */
object OwnPipelines {

  /** Tag of the upper join of a chain from which a build side is derived. */
  val Marked: TreeNodeTag[Unit] = TreeNodeTag[Unit]("sparkext.build")

  /** Tag of an aggregate that workers were planned to finish, but do not. */
  val Sparks: TreeNodeTag[Unit] = TreeNodeTag[Unit]("sparkext.parts")

  /** Costs by plan, because they are requested at each level of the chain above. */
  private val known = new PlanMemo[Option[Costs]]("sparkext.costs")

  def begin(plan: LogicalPlan): Unit = known.begin(plan)

  /** The cost of deriving a build side by a pipeline of its own; None if it is not derived that way. */
  def expected(stage: JoinStage, settings: Settings): Option[Costs] =
    if (stage.asOf.isDefined) None else Guarded("build side")(costs(stage.build, settings)).toOption.flatten

  /** The cost of materialising the rows of an aggregate, below operators that only filter and compute them, before a
    * pipeline reads them.
    *
    * Every task sends partial groups to Spark. That costs little if there are few groups, but is most of the work if
    * there are many. In the latter case workers finish them in one place, if all tasks run on one node.
    */
  def source(plan: LogicalPlan, settings: Settings): Option[Costs] =
    Guarded("source") {
      for {
        aggregate <- Some(Trees.source(plan)).collect { case aggregate: Aggregate => aggregate }
        if settings.groups == "whole" || (settings.groups == "auto" && Acceptance.isOneNode && hasMany(
          aggregate,
          settings))
        made <- costs(plan, settings)
        if settings.hintedOnly.isEmpty || made.hasJoins
      } yield made
    }.toOption.flatten

  private def hasMany(aggregate: Aggregate, settings: Settings): Boolean =
    Estimates.groups(aggregate).exists(_ >= ManyGroups) && Estimates.bytes(aggregate) <= settings.maxBuildBytes.toDouble

  /** The number of groups from which on each task is assumed to produce a large part of them. Measured with TPC-H:
    * 30,000 groups of 680,000 rows, with six tasks, take 1.1 s instead of 1.4 s; 600,000 groups of 18 million rows take
    * 1.2 s instead of 3.5 s.
    */
  private val ManyGroups = 10000.0

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

  /** The build sides of a chain that are expected to be derived by pipelines, marked for their own planning. */
  def of(chain: JoinChain, settings: Settings): Seq[LogicalPlan] = {
    val (own, others) = chain.stages.partition(expected(_, settings).isDefined)
    own.foreach(stage => Trees.source(stage.build).setTagValue(Marked, ()))
    others.foreach(stage => Trees.source(stage.build).unsetTagValue(Marked))
    own.map(_.build)
  }
}
