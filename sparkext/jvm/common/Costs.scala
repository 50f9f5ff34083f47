package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions.{AttributeSet, Expression}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, Filter, LogicalPlan, Project}
import org.apache.spark.sql.internal.SQLConf

/** What a chain of joins costs as a pipeline and as Spark's own joins, in seconds of two cores on the machine that the
  * coefficients were measured on. Only their ratio matters.
  *
  * A pipeline pays for every row and column that crosses into Python, before any join has dropped a row; Spark pays for
  * shuffling and sorting both sides of each join that it cannot broadcast, after the joins before it have dropped theirs.
  */
object Costs {
  // Seconds per million rows (and column): see the figures for the crossing, Spark's joins and the output in the README.
  private val CrossedRow = 0.02
  private val CrossedColumn = 0.02
  private val IndexedRow = 0.02
  private val ReturnedColumn = 0.02
  private val ShuffledRow = 0.14
  private val ShuffledColumn = 0.02
  private val BroadcastProbedRow = 0.02

  // A build side that filters have made small is likely to be broadcast after all, once adaptive execution has seen its
  // size: then both sides have been shuffled, but are not sorted.
  private val FewKept = 0.3
  private val NotSorted = 0.5

  def pipeline(chain: JoinChain): Double = {
    val builds = chain.stages.map { stage =>
      val columns = if (givesColumns(stage)) stage.build.output.length else stage.keys.length
      millions(stage.build) * (CrossedRow + IndexedRow + CrossedColumn * columns)
    }
    val columns = chain.probe.output.length + chain.stages.filter(givesColumns).map(_.build.output.length).sum
    millions(chain.probe) * (CrossedRow + CrossedColumn * chain.probe.output.length) + builds.sum +
      survivors(chain).last * ReturnedColumn * columns
  }

  def spark(chain: JoinChain): Double = chain.stages.zip(survivors(chain)).map { case (stage, rows) =>
    if (isBroadcast(stage.build) || isBroadcast(stage.probe)) rows * BroadcastProbedRow
    else {
      val shuffled = shuffling(stage.probe, rows, stage.keys.map(_.probe)) +
        shuffling(stage.build, millions(stage.build), stage.keys.map(_.build))
      if (Estimates.kept(stage.build) <= FewKept) shuffled * NotSorted else shuffled
    }
  }.sum

  /** Groups already lie where a join on what they are grouped by wants them. */
  private def shuffling(plan: LogicalPlan, rows: Double, keys: Seq[Expression]): Double =
    if (isGroupedBy(plan, AttributeSet(keys.flatMap(_.references)))) 0.0
    else rows * (ShuffledRow + ShuffledColumn * plan.output.length)

  @scala.annotation.tailrec
  private def isGroupedBy(plan: LogicalPlan, keys: AttributeSet): Boolean = plan match {
    case aggregate: Aggregate =>
      val groups = aggregate.aggregateExpressions.filter(column => aggregate.groupingExpressions.exists(_.semanticEquals(column)))
      groups.length == aggregate.groupingExpressions.length && AttributeSet(groups).subsetOf(keys)
    case Filter(_, child) => isGroupedBy(child, keys)
    case Project(_, child) => isGroupedBy(child, keys)
    case _ => false
  }

  def isBroadcast(plan: LogicalPlan): Boolean = plan.stats.sizeInBytes <= SQLConf.get.autoBroadcastJoinThreshold

  /** Millions of rows before each stage, and after the last. */
  private def survivors(chain: JoinChain): Seq[Double] =
    chain.stages.scanLeft(millions(chain.probe)) { (rows, stage) =>
      if (stage.kind == "inner" || stage.kind == "semi") rows * Estimates.kept(stage.build) else rows
    }

  private def givesColumns(stage: JoinStage): Boolean = stage.kind == "inner" || stage.kind == "left"

  private def millions(plan: LogicalPlan): Double = Estimates.rows(plan) / 1e6
}
