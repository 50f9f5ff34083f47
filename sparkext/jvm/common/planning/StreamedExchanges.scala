package org.apache.spark.sql.sparkext.planning

import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.adaptive.{AdaptiveSparkPlanExec, ResultQueryStageExec, ShuffleQueryStageExec}
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec
import org.apache.spark.sql.execution.command.DataWritingCommandExec
import org.apache.spark.sql.execution.datasources.WriteFilesExecBase
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2ScanExecBase, V2TableWriteExec}
import org.apache.spark.sql.execution.exchange.ShuffleExchangeLike
import org.apache.spark.sql.execution.python.{EvalPythonExec, MapInBatchExec}
import org.apache.spark.sql.sparkext.exec.PipelinedJoinExec
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons, Settings}
import org.apache.spark.sql.sparkext.shuffle.Streamed

/** Lets the probe side of a partitioned join stream to its partitions, if that is requested and Spark supports it. Then
  * all tasks of the job run at the same time, and no other shuffle may belong to the job.
  */
object StreamedExchanges extends PhysicalRule("stages") {

  /** Why the partitions of a join run in waves although streaming was requested. */
  val Declined: TreeNodeTag[String] = TreeNodeTag[String]("sparkext.streamed")

  override protected def changed(plan: SparkPlan): SparkPlan = {
    val among = partitioned(plan)
    if (among.isEmpty || new Settings(plan.conf).stages == "waves") plan
    else {
      val refused = if (among.length > 1) Some(Reason("SEVERAL_PARTITIONED_JOINS")) else around(plan)
      plan.transformUp {
        case pipeline: PipelinedJoinExec if among.exists(_ eq pipeline) => of(pipeline, refused)
      }
    }
  }

  private def of(pipeline: PipelinedJoinExec, refused: Option[String]): SparkPlan = {
    val way = for {
      _ <- refused.toLeft(())
      by = pipeline.exchange.get
      _ <- Reasons.check(by.keyed, Reason("JOIN_MATRIX"))
      _ <- Reasons.check(
        by.clusters.isEmpty && pipeline.grouping.isEmpty,
        Reason("ROWS_OF_A_KEY_TOGETHER"))
      _ <- Reasons.check(
        !pipeline.joins.headOption.exists(_.kind == "full"),
        Reason("UNMATCHED_ROWS_LAST"))
      found <- Streamed.of(pipeline.session.sparkContext)
    } yield by.copy(buckets = Streamed.buckets(found.partitions), streamed = Some(found))
    way match {
      case Right(exchange) => pipeline.as(pipeline.copy(exchange = Some(exchange)))
      case Left(reason) =>
        pipeline.setTagValue(Declined, reason)
        pipeline
    }
  }

  /** The operators that run in the same job. Build sides run in jobs of their own. */
  private def sameJob(plan: SparkPlan): Seq[SparkPlan] = plan match {
    case pipeline: PipelinedJoinExec => pipeline +: sameJob(pipeline.probe)
    case other => other +: other.children.flatMap(sameJob)
  }

  private def partitioned(plan: SparkPlan): Seq[PipelinedJoinExec] =
    sameJob(plan).collect { case pipeline: PipelinedJoinExec if pipeline.exchange.isDefined => pipeline }

  private def around(plan: SparkPlan): Option[String] = sameJob(plan).flatMap {
    case _: ShuffleExchangeLike | _: ShuffleQueryStageExec => Some(Reason("SECOND_SHUFFLE"))
    case _: CollectLimitExec | _: CollectTailExec | _: TakeOrderedAndProjectExec =>
      Some(Reason("LIMIT_OF_PARTITIONS"))
    case pipeline: PipelinedJoinExec if pipeline.parts.isDefined => Some(Reason("SECOND_SHUFFLE"))
    case other => if (isNarrow(other)) None else Some(Reason("OPERATOR_OF_SAME_JOB", other.nodeName))
  }.headOption

  /** Whether each task of an operator reads one partition, all partitions are read, and the plan shows all inputs of
    * the operator.
    */
  private def isNarrow(plan: SparkPlan): Boolean = plan match {
    case _: PipelinedJoinExec | _: ProjectExec | _: FilterExec | _: GenerateExec | _: ExpandExec | _: CollectMetricsExec =>
      true
    case _: BaseAggregateExec => true // of rows from a shuffle, or from a join's partitions
    case _: WholeStageCodegenExec | _: InputAdapter | _: ColumnarToRowExec | _: AdaptiveSparkPlanExec | _: ResultQueryStageExec =>
      true
    case _: FileSourceScanExec | _: DataSourceV2ScanExecBase | _: LocalTableScanExec | _: RangeExec => true
    case _: MapInBatchExec | _: EvalPythonExec | _: DeserializeToObjectExec | _: SerializeFromObjectExec | _: MapPartitionsExec =>
      true
    case _: DataWritingCommandExec | _: WriteFilesExecBase | _: V2TableWriteExec => true
    case _ => false
  }
}
