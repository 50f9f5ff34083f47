package org.apache.spark.sql.sparkext

import java.util.{ArrayList, List => JavaList}

import scala.collection.mutable

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.{QueryExecution, SparkPlan}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.util.CollectionAccumulator

/** The reports of the latest runs of pipelines, by the joins that they consist of.
  *
  * An action may plan its DataFrame anew (`count`, a write), so a run is not found by its plan: it is found by its keys,
  * whose expression ids stay.
  */
object PipelineRuns {
  private val Kept = 64

  /** Names the joins of an operator across plans of the same DataFrame. */
  val Key: TreeNodeTag[String] = TreeNodeTag[String]("sparkext.joins")

  private val runs = mutable.LinkedHashMap.empty[String, CollectionAccumulator[String]]

  def begin(operator: PipelinedJoinExec, context: SparkContext): CollectionAccumulator[String] = synchronized {
    val log = context.collectionAccumulator[String]
    operator.getTagValue(Key).foreach { key =>
      runs.remove(key)
      runs.put(key, log)
      while (runs.size > Kept) runs.remove(runs.head._1)
    }
    log
  }

  /** For each pipeline in the plan of a DataFrame, top down: the labels of its joins, and its tasks' reports as JSON. */
  def of(query: QueryExecution): JavaList[Run] = synchronized {
    val found = new ArrayList[Run]()
    operators(query.executedPlan).foreach { operator =>
      val reports = operator.getTagValue(Key).flatMap(runs.get).map(_.value).getOrElse(new ArrayList[String]())
      val labels = new ArrayList[String]()
      operator.joins.foreach(join => labels.add(s"${join.kind} ${join.label}"))
      found.add(new Run(labels, reports))
    }
    found
  }

  /** The reasons of all joins in the plan of a DataFrame that are Spark's own, top down; those of which nothing is left in the
    * plan that runs come last.
    */
  def declined(query: QueryExecution): JavaList[String] = {
    val reasons = new ArrayList[String]()
    nodes(query.executedPlan).foreach {
      case declined: DeclinedJoinExec => reasons.add(declined.reason)
      case _ =>
    }
    query.normalized.foreachWithSubqueries(_.getTagValue(Guarded.Declined).foreach(reasons.add))
    reasons
  }

  private def operators(plan: SparkPlan): Seq[PipelinedJoinExec] =
    nodes(plan).collect { case operator: PipelinedJoinExec => operator }

  private def nodes(plan: SparkPlan): Seq[SparkPlan] = plan match {
    case adaptive: AdaptiveSparkPlanExec => nodes(adaptive.executedPlan)
    case stage: org.apache.spark.sql.execution.adaptive.QueryStageExec => nodes(stage.plan)
    case other => other +: (other.children ++ other.subqueries).flatMap(nodes)
  }
}

/** One pipeline of a plan and what its last run reported. A class with getters, for Python to read. */
class Run(val joins: JavaList[String], val reports: JavaList[String])
