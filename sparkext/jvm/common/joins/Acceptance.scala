package org.apache.spark.sql.sparkext.joins

import org.apache.spark.SparkContext
import org.apache.spark.internal.config.{EXECUTOR_CORES, IO_ENCRYPTION_ENABLED}
import org.apache.spark.internal.config.Python.PYSPARK_EXECUTOR_MEMORY
import org.apache.spark.sql.catalyst.expressions.DynamicPruning
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan}
import org.apache.spark.sql.execution.adaptive.{BroadcastQueryStageExec, LogicalQueryStage}
import org.apache.spark.sql.sparkext.groups.Groups
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons, Settings, Shared}
import org.apache.spark.sql.sparkext.python.WorkerPython
import org.apache.spark.sql.sparkext.shuffle.Exchange

/** Decides which of the supported joins run as pipelines. */
object Acceptance {

  /** Whether a single join is accepted. Hint mode accepts hinted joins only. No mode accepts a build side that is known
    * not to fit, or a join for which the query requests one of Spark's joins.
    */
  def stage(stage: JoinStage, settings: Settings): Either[String, Unit] = {
    val size = Estimates.bytes(stage.build).toLong
    if (stage.full && stage.keys.isEmpty && !Exchange.wants(stage, settings)) {
      Left(Reason("FULL_JOIN_NOT_PARTITIONED", Exchange.refused(stage, settings)))
    } else if (stage.asOf.isDefined || settings.force) Right(()) // PlanAsOfJoins has already accepted as-of joins
    else if (stage.foreignHint.isDefined) Left(Reason("OTHER_HINT", stage.foreignHint.get))
    else if (stage.hint.isEmpty && settings.hintedOnly.isDefined) Left(settings.hintedOnly.get)
    else if (Exchange.wants(stage, settings)) Right(())
    else if (stage.hint.isEmpty && size > settings.maxBuildBytes) {
      Left(Reason("BUILD_SIDE_ESTIMATE", size, settings.maxBuildBytes, Exchange.refused(stage, settings)))
    } else if (stage.hint.isEmpty && addressSpace.exists(size > _ - Shared.LeastAddressSpace)) {
      Left(Reason("ADDRESS_SPACE_OF_BUILD_SIDE", size, addressSpace.get >> 20))
    } else Right(())
  }

  /** Whether a whole chain is accepted, in auto mode by its estimated costs. Hinted joins are accepted without
    * estimates, and so are as-of joins: Spark compares each of their rows with all rows that have an equal key.
    * `build`: set if the chain derives a build side of another pipeline.
    *
    * No margin is required. Measured with TPC-H and TPC-DS at scale factor 1: 0.7 of Spark's cost and a saving of a
    * quarter of a second left 55 queries to Spark, as a whole or in part. Planned, they take 0.75 of Spark's time with
    * cold indexes and 0.65 with cached ones (geometric means), and none takes more than 1.1 of it.
    */
  def chain(
      chain: JoinChain,
      grouping: Option[Groups],
      build: Option[LogicalPlan],
      settings: Settings): Either[String, Unit] = {
    lazy val costs = new Costs(chain, grouping, settings)
    if (settings.hintedOnly.isDefined && chain.stages.isEmpty) Left(settings.hintedOnly.get)
    else if (settings.force || settings.hintedOnly.isDefined || chain.stages.exists(stage =>
        stage.hint.isDefined || stage.asOf.isDefined)) Right(())
    else if (chain.stages.forall(stage => stage.keys.nonEmpty && Costs.isBroadcast(stage.build)) && !costs.fused) {
      Left(Reason("ALL_BROADCAST"))
    } else if (isPrunedAtRunTime(chain.probe)) {
      Left(Reason("PARTITION_PRUNING"))
    } else if (build.isDefined) {
      made(costs, build.get, settings)
    } else {
      val (ours, sparks) = (costs.pipeline, costs.spark)
      Reasons.check(ours < sparks, Reason("NOT_CHEAPER", f"$ours%.3f", f"$sparks%.3f"))
    }
  }

  /** Whether a build side that workers would derive is accepted, in auto mode by its estimated costs: each node derives
    * all of it.
    */
  def made(costs: Costs, build: LogicalPlan, settings: Settings): Either[String, Unit] = {
    lazy val (ours, sparks) = (costs.made * nodes, costs.spark + costs.crossing(build))
    Reasons.check(
      settings.force || settings.hintedOnly.isDefined || ours < sparks,
      Reason("BUILD_SIDE_NOT_CHEAPER", f"$ours%.3f", f"$sparks%.3f"))
  }

  /** Whether all tasks run on one node. Each executor counts as a node. */
  def isOneNode: Boolean = nodes == 1

  private def nodes: Int = {
    val context = SparkContext.getOrCreate()
    if (context.isLocal) 1 else math.max(1, context.statusTracker.getExecutorInfos.length - 1)
  }

  /** Whether there is a Python to run pipelines, with enough address space for one. */
  def workers: Either[String, Unit] = for {
    _ <- WorkerPython.found.left.map(problem => Reason("NO_PYTHON", problem))
    _ <- addressSpace.filter(_ < Shared.LeastAddressSpace).map { bytes =>
      Reason("ADDRESS_SPACE", bytes >> 20, Shared.LeastAddressSpace >> 20)
    }.toLeft(())
  } yield ()

  /** The address space that Spark grants each worker, including libraries and mapped files: its share of the executor's
    * limit.
    */
  private def addressSpace: Option[Long] = {
    val conf = WorkerPython.applications
    conf.get(PYSPARK_EXECUTOR_MEMORY).map(mebibytes => (mebibytes << 20) / conf.get(EXECUTOR_CORES))
  }

  /** Whether build sides may be stored in unencrypted files, which workers map. */
  def files(context: SparkContext): Either[String, Unit] =
    if (context.conf.get(IO_ENCRYPTION_ENABLED)) {
      Left(Reason("ENCRYPTED_LOCAL_FILES"))
    } else Right(())

  /** Whether all sides can provide rows. When adaptive execution replans a query, a side that is already broadcast
    * cannot: its rows are not available to other operators.
    */
  def rows(chain: JoinChain): Either[String, Unit] = {
    val broadcast = (chain.probe +: chain.stages.map(_.build)).exists {
      case LogicalQueryStage(_, _: BroadcastQueryStageExec) => true
      case _ => false
    }
    if (broadcast) Left(Reason("ALREADY_BROADCAST")) else Right(())
  }

  private def isPrunedAtRunTime(plan: LogicalPlan): Boolean = plan.exists {
    case Filter(condition, _) => condition.exists(_.isInstanceOf[DynamicPruning])
    case _ => false
  }
}
