package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.{CollectLimitExec, CollectTailExec, ColumnarRule, SparkPlan, TakeOrderedAndProjectExec}
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec
import org.apache.spark.sql.execution.exchange.ShuffleExchangeLike

/** Lets the probe side of a partitioned join stream to its slots, if that is asked for, and Spark can do it: all tasks of a job
  * run at a time then, and no other shuffle belongs to it.
  */
object StreamedExchanges extends ColumnarRule {

  /** Why the slots of a join run in waves although they are asked to run at once. */
  val Declined: TreeNodeTag[String] = TreeNodeTag[String]("sparkext.streamed")

  override def postColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
    override def apply(plan: SparkPlan): SparkPlan =
      Guarded("stages")(if (new Settings(conf).stages == "waves") plan else streamed(plan)).getOrElse(plan)
  }

  private def streamed(plan: SparkPlan): SparkPlan = {
    val among = partitioned(plan)
    val refused = around(plan).orElse(if (among.length > 1) Some("several joins are partitioned") else None)
    plan.transformUp {
      case pipeline: PipelinedJoinExec if among.exists(_ eq pipeline) => of(pipeline, refused)
    }
  }

  private def of(pipeline: PipelinedJoinExec, refused: Option[String]): SparkPlan = {
    val way = for {
      _ <- refused.toLeft(())
      by = pipeline.exchange.get
      _ <- JoinStage.check(by.keyed, "units of a join matrix have no lines")
      _ <- JoinStage.check(by.clusters.isEmpty && pipeline.grouping.isEmpty, "rows of one key have to come out of one slot")
      _ <- JoinStage.check(!pipeline.joins.headOption.exists(_.kind == "full"), "a full outer join emits build rows when all others have come")
      found <- Streamed.of(pipeline.session.sparkContext)
    } yield by.copy(lines = Streamed.lines(found.slots), streamed = Some(found))
    way match {
      case Right(exchange) => pipeline.as(pipeline.copy(exchange = Some(exchange)))
      case Left(reason) =>
        pipeline.setTagValue(Declined, reason)
        pipeline
    }
  }

  /** What runs in the same job: build sides run in jobs of their own. */
  private def sameJob(plan: SparkPlan): Seq[SparkPlan] = plan match {
    case pipeline: PipelinedJoinExec => pipeline +: sameJob(pipeline.probe)
    case other => other +: other.children.flatMap(sameJob)
  }

  private def partitioned(plan: SparkPlan): Seq[PipelinedJoinExec] =
    sameJob(plan).collect { case pipeline: PipelinedJoinExec if pipeline.exchange.isDefined => pipeline }

  private def around(plan: SparkPlan): Option[String] = sameJob(plan).collectFirst {
    case _: ShuffleExchangeLike | _: ShuffleQueryStageExec => "another shuffle belongs to the same job"
    case _: CollectLimitExec | _: CollectTailExec | _: TakeOrderedAndProjectExec => "a limit asks for some partitions only"
    case pipeline: PipelinedJoinExec if pipeline.parts.isDefined => "another shuffle belongs to the same job"
  }
}
