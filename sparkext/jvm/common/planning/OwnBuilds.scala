package org.apache.spark.sql.sparkext.planning

import org.apache.spark.sql.execution._
import org.apache.spark.sql.sparkext.build_sides.PipelinedBuild
import org.apache.spark.sql.sparkext.exec.PipelinedJoinExec
import org.apache.spark.sql.sparkext.groups.WholeGroupsExec

/** Marks each pipeline that produces a build side, or the source, of another pipeline. A marked pipeline does not start
  * before its rows are requested, because workers may derive these rows without it.
  */
object OwnBuilds extends PhysicalRule("build sides") {
  override protected def changed(plan: SparkPlan): SparkPlan = plan.transformUp { case pipeline: PipelinedJoinExec =>
    val makesProbe = PipelinedBuild.wholeBelow(pipeline.probe).isDefined || pipeline.exchange.isDefined
    val probe = if (makesProbe) asBuild(pipeline.probe) else pipeline.probe
    pipeline.withNewChildren(probe +: pipeline.builds.map(asBuild))
  }

  private def asBuild(plan: SparkPlan): SparkPlan = plan match {
    case pipeline: PipelinedJoinExec => pipeline.as(pipeline.copy(asBuild = true))
    case _: WholeStageCodegenExec | _: InputAdapter | _: FilterExec | _: ProjectExec | _: WholeGroupsExec =>
      plan.mapChildren(asBuild)
    case other => other
  }
}
