package org.apache.spark.sql.sparkext.groups

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, NamedExpression}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.sparkext.exec.PipelinedJoinExec
import org.apache.spark.sql.sparkext.expressions.Wording
import org.apache.spark.sql.sparkext.joins.OwnPipelines
import org.apache.spark.sql.sparkext.protocol.Redaction
import org.apache.spark.sql.sparkext.shim.SparkShim

/** An aggregate that workers finish, for a build side or for the source of a pipeline: `results` are computed from the
  * complete groups of `child`.
  *
  * It has no exchange. If workers do not finish it after all, `otherwise` runs: the aggregate as Spark plans it.
  */
case class WholeGroupsExec(
    results: Seq[NamedExpression],
    override val output: Seq[Attribute],
    child: SparkPlan,
    @transient otherwise: LogicalPlan)
    extends UnaryExecNode {

  override def nodeName: String = "WholeGroups"

  override protected def doExecute(): RDD[InternalRow] = aggregated.execute()

  @transient @volatile private var planned: Option[SparkPlan] = None

  private def aggregated: SparkPlan = synchronized {
    if (planned.isEmpty) {
      val aggregate = otherwise.clone()
      aggregate.setTagValue(OwnPipelines.Sparks, ())
      planned = Some(SparkShim.executed(session, aggregate))
    }
    planned.get
  }

  override def innerChildren: Seq[QueryPlan[_]] = super.innerChildren ++ planned

  override protected def doCanonicalize(): SparkPlan = super.doCanonicalize() match {
    case groups: WholeGroupsExec => groups.copy(otherwise = PipelinedJoinExec.Canonical)
    case other => other
  }

  override def simpleString(maxFields: Int): String = {
    val told = results.map(Wording.of).mkString("[", ", ", "]")
    s"$nodeName ${Redaction.redacted(told)}${planned.map(_ => " by Spark's own aggregate").getOrElse("")}"
  }

  override protected def withNewChildInternal(newChild: SparkPlan): WholeGroupsExec = copy(child = newChild)
}
