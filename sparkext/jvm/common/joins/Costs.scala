package org.apache.spark.sql.sparkext.joins

import org.apache.spark.sql.catalyst.expressions.{AttributeSet, Expression}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, LogicalPlan}
import org.apache.spark.sql.execution.adaptive.{LogicalQueryStage, ShuffleQueryStageExec}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sparkext.expressions.Trees
import org.apache.spark.sql.sparkext.groups.Groups
import org.apache.spark.sql.sparkext.protocol.Settings
import org.apache.spark.sql.sparkext.scan.FusedScan
import org.apache.spark.sql.sparkext.shuffle.Exchange
import org.apache.spark.sql.types.{BinaryType, StringType}

/** The costs of a chain of joins as a pipeline and as Spark's own joins, in seconds of two cores of the machine on
  * which the coefficients were measured. Only their ratio matters.
  *
  * A pipeline pays for every row and column that workers read from files, which is cheap, or that crosses into Python,
  * before any join has dropped a row. It also pays for every row that is returned or grouped. Spark pays for reading
  * the same files, for shuffling and sorting both sides of each join that it cannot broadcast, after the earlier joins
  * have dropped rows, and for probing.
  */
class Costs(chain: JoinChain, grouping: Option[Groups], settings: Settings) {
  import Costs._

  private val probeKeys = chain.stages.flatMap(_.probes)

  /** The columns of each side that workers read, if they read the side. */
  private lazy val probeRead: Option[AttributeSet] = columnsRead(chain.probe, probeKeys)
  private lazy val buildsRead: Seq[Option[AttributeSet]] =
    chain.stages.map(stage => columnsRead(stage.build, stage.indexed))

  /** The costs of the build sides that pipelines derive, by join number. */
  private lazy val pipelined: Map[Int, Costs] = chain.stages.zipWithIndex.flatMap { case (stage, number) =>
    OwnPipelines.expected(stage, settings).map(number -> _)
  }.toMap

  /** The cost of materialising the rows of the probe side, if workers do. */
  private lazy val source: Option[Costs] = OwnPipelines.source(chain.probe, settings)

  /** Whether workers read or materialise the probe side: then none of its rows crosses into Python. */
  def fused: Boolean = isRead || source.isDefined

  private def isRead: Boolean = probeRead.isDefined

  def hasJoins: Boolean = chain.stages.nonEmpty

  private lazy val exchange: Option[Exchange] = Exchange.of(chain, settings).toOption.flatten

  /** The cost of sending both sides to partitions, which read them again. */
  private def sending(by: Exchange): Double = {
    val sides = chain.probe +: by.builds.map(chain.stages(_).build)
    SendingStarted + sides.map(side => millions(side) * (SentRow + SentColumn * side.output.length)).sum
  }

  /** Whether workers can derive all rows of the chain from files. */
  def isOwn: Boolean =
    isRead && exchange.isEmpty && !chain.stages.headOption.exists(_.full) && chain.stages.zipWithIndex.forall {
      case (stage, number) =>
        buildsRead(number).isDefined || pipelined.contains(number)
    }

  /** The cost of the pipeline, including its start and the return of its rows. */
  def pipeline: Double = {
    val columns = chain.probe.output.length + chain.stages.filter(givesColumns).map(_.build.output.length).sum
    val parted = exchange.isEmpty && chain.stages.headOption.exists(_.full)
    val shuffled = if (parted) shuffling(chain.probe, millions(chain.probe), probeKeys) * NotSorted else 0.0
    Started + shuffled + exchange.map(sending).getOrElse(0.0) + made + (if (grouping.isEmpty)
                                                                          survivors.last * ReturnedColumn * columns
                                                                        else 0.0)
  }

  /** The cost of producing rows, or groups, in workers. */
  lazy val made: Double = {
    val builds = chain.stages.zipWithIndex.map { case (stage, number) =>
      val columns = if (givesColumns(stage)) stage.build.output.length else stage.indexed.length
      val rows =
        pipelined.get(number).map(_.made + PipelineStarted).getOrElse(fetched(stage.build, buildsRead(number), columns))
      rows + millions(stage.build) * IndexedRow
    }
    val loops = chain.stages.zip(survivors).map { case (stage, rows) =>
      if (stage.nested) rows * millions(stage.build) * LoopPair * stopped(stage) else 0.0
    }
    val probe =
      source.map(_.made + PipelineStarted).getOrElse(fetched(chain.probe, probeRead, chain.probe.output.length))
    probe + builds.sum + loops.sum +
      grouping.map(groups =>
        survivors.last * (GroupedRow * groups.groupings.length + GroupedValue * values(groups))).getOrElse(0.0)
  }

  /** The cost, in addition to Spark's own plan, of a build side that Spark produces: its rows cross into Python. */
  def crossing(build: LogicalPlan): Double = crossed(build, build.output.length)

  private def values(groups: Groups): Int = groups.groupings.map(one => one.keys.length + one.calls.length).sum

  lazy val spark: Double = {
    val joins = chain.stages.zip(survivors).map { case (stage, rows) =>
      if (stage.keys.isEmpty) rows * millions(stage.build) * NestedPair * stopped(stage)
      else if (isBroadcast(stage.build) || (stage.kind == "inner" && isBroadcast(stage.probe)))
        rows * BroadcastProbedRow
      else {
        val shuffled = shuffling(stage.probe, rows, stage.keys.map(_.probe)) +
          shuffling(stage.build, millions(stage.build), stage.keys.map(_.build))
        ShufflesStarted + (if (Estimates.kept(stage.build) <= FewKept) shuffled * NotSorted else shuffled)
      }
    }
    val sources = (chain.probe -> probeRead) +: chain.stages.map(_.build).zip(buildsRead)
    val scans = sources.flatMap { case (plan, read) =>
      read.map(reading(plan, _, ScannedRow, ScannedColumn, ScannedText))
    }
    val grouped = grouping.map(groups =>
      survivors.last * (SparkGroupedRow * groups.groupings.length + SparkGroupedValue * values(groups)))
    joins.sum + scans.sum + grouped.getOrElse(0.0) + (pipelined.values ++ source).map(_.spark).sum
  }

  /** The cost of bringing the rows of a source to the workers. */
  private def fetched(plan: LogicalPlan, read: Option[AttributeSet], columns: Int): Double =
    read.map(reading(plan, _, ReadRow, ReadColumn, ReadText)).getOrElse(crossed(plan, columns))

  private def crossed(plan: LogicalPlan, columns: Int): Double = millions(plan) * (CrossedRow + CrossedColumn * columns)

  private def columnsRead(plan: LogicalPlan, keys: Seq[Expression]): Option[AttributeSet] = {
    val own = keys.map(chain.atSources).filter(_.references.subsetOf(plan.outputSet))
    FusedScan.expected(plan, plan.output ++ own, settings)
  }

  /** Millions of rows before each stage, and after the last. */
  private lazy val survivors: Seq[Double] =
    chain.stages.scanLeft(millions(chain.probe)) { (rows, stage) =>
      if (stage.nested && givesColumns(stage)) rows * Estimates.rows(stage.build) * LoopKept
      else if (stage.keys.isEmpty && givesColumns(stage) && Ranges.isOneSided(stage.ranges))
        rows * Estimates.rows(stage.build) / 2
      else if (stage.kind == "inner" || stage.kind == "semi") rows * Estimates.kept(stage.build)
      else rows
    }
}

object Costs {
  // Seconds per million rows (and column). See docs/benchmarks.md for the crossing, scans, Spark's joins and the
  // output.
  private val ReadRow = 0.005
  private val ReadColumn = 0.006
  private val ReadText = 0.03
  private val CrossedRow = 0.02
  private val CrossedColumn = 0.02
  private val IndexedRow = 0.02
  private val SentRow = 0.025
  private val SentColumn = 0.01
  private val ReturnedColumn = 0.01
  private val GroupedRow = 0.01
  private val GroupedValue = 0.012
  private val SparkGroupedRow = 0.04
  private val SparkGroupedValue = 0.05
  private val ScannedRow = 0.02
  private val ScannedColumn = 0.012
  private val ScannedText = 0.02
  private val ShuffledRow = 0.14
  private val ShuffledColumn = 0.02
  private val BroadcastProbedRow = 0.05

  /** Seconds per 10¹² pairs: without an equality, Spark tests every pair. */
  private val NestedPair = 3000.0
  private val StoppedEarly = 0.5

  /** The same for workers, which test every pair in compiled loops; and the share of pairs that a formula is assumed to
    * keep.
    */
  private val LoopPair = 150.0
  private val LoopKept = 0.01

  /** Fixed costs in seconds: of starting the workers, of starting to derive a build side, of starting to send a side,
    * and of the stages of a shuffled join.
    */
  private val Started = 0.2
  private val PipelineStarted = 0.05
  private val SendingStarted = 0.1
  private val ShufflesStarted = 0.15

  // A build side that filters have made small is likely to be broadcast after all, once adaptive execution has measured
  // its size. Then both sides have been shuffled, but are not sorted.
  private val FewKept = 0.3
  private val NotSorted = 0.5

  /** The cost of shuffling a side. Groups are already partitioned for a join on their grouping columns, and so is a
    * side that has been shuffled.
    */
  private def shuffling(plan: LogicalPlan, rows: Double, keys: Seq[Expression]): Double =
    if (isShuffled(plan) || isGroupedBy(plan, AttributeSet(keys.flatMap(_.references)))) 0.0
    else rows * (ShuffledRow + ShuffledColumn * plan.output.length)

  /** Whether adaptive execution, which replans the rest of a query, has already run the shuffle of this side. */
  private def isShuffled(plan: LogicalPlan): Boolean = plan.exists {
    case LogicalQueryStage(_, physical) => physical.exists(_.isInstanceOf[ShuffleQueryStageExec])
    case _ => false
  }

  private def isGroupedBy(plan: LogicalPlan, keys: AttributeSet): Boolean = Trees.source(plan) match {
    case aggregate: Aggregate =>
      val groups =
        aggregate.aggregateExpressions.filter(column => aggregate.groupingExpressions.exists(_.semanticEquals(column)))
      groups.length == aggregate.groupingExpressions.length && AttributeSet(groups).subsetOf(keys)
    case _ => false
  }

  def isBroadcast(plan: LogicalPlan): Boolean = plan.stats.sizeInBytes <= SQLConf.get.autoBroadcastJoinThreshold

  /** The cost of reading these columns of all rows, before any filter. */
  private def reading(plan: LogicalPlan, columns: AttributeSet, row: Double, number: Double, text: Double): Double = {
    val texts = columns.count(column => column.dataType == StringType || column.dataType == BinaryType)
    Estimates.whole(plan) / 1e6 * (row + text * texts + number * (columns.size - texts))
  }

  /** The share of all pairs that is tested: the search for a row that needs only one match stops at the first. */
  private def stopped(stage: JoinStage): Double = if (givesColumns(stage)) 1.0 else StoppedEarly

  private def givesColumns(stage: JoinStage): Boolean = stage.kind == "inner" || stage.outer

  private def millions(plan: LogicalPlan): Double = Estimates.rows(plan) / 1e6
}
