package org.apache.spark.sql.sparkext.protocol

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try

import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.{QueryExecution, SQLExecution, SparkPlan}
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
import org.apache.spark.sql.sparkext.exec.{DeclinedJoinExec, PipelinedJoinExec}
import org.apache.spark.sql.sparkext.planning.Guarded
import org.apache.spark.sql.sparkext.shuffle.PartitionRuns
import org.apache.spark.util.CollectionAccumulator

/** The reports of the latest runs of pipelines, by the joins that they consist of and by the queries that ran them.
  *
  * An action may plan its DataFrame again (`count`, a write), so a run is not found by its physical plan. It is found
  * by the keys of its joins, whose expression ids stay the same, if the analysed plan of the query that ran contains
  * the analysed plan of the DataFrame. The second condition is needed because several DataFrames may share the keys,
  * for example if one filters the other's input.
  */
object PipelineRuns {
  private val Kept = 64

  /** Identifies the joins of an operator across plans of the same DataFrame. */
  val Key: TreeNodeTag[String] = TreeNodeTag[String]("sparkext.joins")

  /** Identifies the runs of an operator: its key, and the semantic hash of each subtree of the analysed plan that ran.
    * Hashes are used because plans may contain the rows of local relations. None if an RDD ran outside of any query.
    */
  private case class Place(key: String, subtrees: Option[Set[Int]]) {
    def holds(query: QueryExecution): Boolean = subtrees.forall(_.contains(query.analyzed.semanticHash()))
  }

  /** The log of each run, or the reason why Spark's own joins ran instead; the latest run is first. */
  @volatile private var runs = Vector.empty[(Place, Either[String, RunLog])]

  /** Starts a run. `alike`: equal for runs whose partitions need the same time per row; None if the run's partitions
    * are not planned.
    */
  def begin(operator: PipelinedJoinExec, context: SparkContext, alike: Option[String]): RunLog = {
    val before = alike.flatMap(_ => runs.flatMap(_._2.toOption).find(_.alike == alike))
    val log =
      new RunLog(
        context.collectionAccumulator[String],
        context.collectionAccumulator[(Int, Double)],
        alike,
        before.flatMap(_.ran))
    remember(operator, Right(log))
    log
  }

  def fellBack(operator: PipelinedJoinExec, reason: String): Unit = remember(operator, Left(reason))

  private def remember(operator: PipelinedJoinExec, run: Either[String, RunLog]): Unit =
    operator.getTagValue(Key).foreach { key =>
      val place = Place(key, subtrees(operator.session.sparkContext))
      synchronized { runs = ((place -> run) +: runs.filterNot(_._1 == place)).take(Kept) }
    }

  /** The semantic hash of each subtree of the analysed plan that this thread runs; None if it runs no query, or if a
    * plan has no canonical form.
    */
  private def subtrees(context: SparkContext): Option[Set[Int]] =
    for {
      id <- Option(context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY))
      query <- Option(SQLExecution.getQueryExecution(id.toLong))
      hashes <- Try {
        val found = Set.newBuilder[Int]
        query.analyzed.foreachWithSubqueries(plan => found += plan.semanticHash())
        found.result()
      }.toOption
    } yield hashes

  private def lastRun(operator: PipelinedJoinExec, query: QueryExecution): Option[Either[String, RunLog]] =
    operator.getTagValue(Key).flatMap { key =>
      runs.collectFirst { case (place, run) if place.key == key && place.holds(query) => run }
    }

  /** For each pipeline in the plan of a DataFrame, top down: the labels of its joins, and its last run. A pipeline that
    * workers have run to derive the build side of another pipeline is omitted: it belongs to the run of that pipeline.
    */
  def of(query: QueryExecution): Array[Run] = {
    val found = operators(query.executedPlan)
    val parts = found.flatMap(_.pipelinesWithin)
    found.filterNot(operator => parts.exists(_ eq operator)).map { operator =>
      val run = lastRun(operator, query)
      val labels = operator.joins.map(join => s"${join.kind} ${join.label}")
      val log = run.flatMap(_.toOption)
      val reports = log.toSeq.flatMap(_.reports.value.asScala)
      new Run(labels.toArray, reports.toArray, log.map(_.partitions()).orNull, run.flatMap(_.left.toOption).orNull)
    }.toArray
  }

  /** The reasons of all joins in the plan of a DataFrame that are Spark's own, or were when they last ran, top down.
    * The reasons of joins without a trace in the plan that runs come last.
    */
  def declined(query: QueryExecution): Array[String] = {
    val reasons = mutable.ArrayBuffer.empty[String]
    nodes(query.executedPlan).foreach {
      case declined: DeclinedJoinExec => reasons += declined.reason
      case operator: PipelinedJoinExec => reasons ++= lastRun(operator, query).flatMap(_.left.toOption)
      case _ =>
    }
    query.sparkPlan.logicalLink.foreach(_.foreach(reasons ++= _.getTagValue(Guarded.DeclinedJoin)))
    query.normalized.foreachWithSubqueries(reasons ++= _.getTagValue(Guarded.Declined))
    reasons.toArray
  }

  private def operators(plan: SparkPlan): Seq[PipelinedJoinExec] =
    nodes(plan).collect { case operator: PipelinedJoinExec => operator }

  private def nodes(plan: SparkPlan): Seq[SparkPlan] = plan match {
    case adaptive: AdaptiveSparkPlanExec => nodes(adaptive.executedPlan)
    case stage: org.apache.spark.sql.execution.adaptive.QueryStageExec => nodes(stage.plan)
    case other => other +: (other.children ++ other.subqueries).flatMap(nodes)
  }
}

/** The log of a run: the reports of tasks, the seconds that each partition has `worked`, and the loads of its
  * partitions, planned or present, if it has any; `before`: how the partitions ran in the last run with an equal
  * `alike`.
  */
class RunLog(
    val reports: CollectionAccumulator[String],
    val worked: CollectionAccumulator[(Int, Double)],
    val alike: Option[String],
    val before: Option[PartitionRuns]) {
  @volatile var partitions: () => String = () => null

  /** Loads of the partitions in the last run in which all have finished. */
  def ran: Option[PartitionRuns] = {
    val seconds = worked.value.asScala.toMap.toSeq.sorted.map(_._2)
    Option(partitions()).filter(_ => seconds.nonEmpty).flatMap(loads => PartitionRuns.of(parse(loads), seconds)).orElse(
      before)
  }
}

/** One pipeline of a plan: the reports of its last run as JSON, the loads of its partitions as JSON, and the reason why
  * it fell back to Spark's own joins. The latter two may be null. It is a class with getters, for Python to read, and
  * with arrays, because Python finds the end of a list by an exception, which takes 50 ms.
  */
class Run(val joins: Array[String], val reports: Array[String], val partitions: String, val fellBack: String)
