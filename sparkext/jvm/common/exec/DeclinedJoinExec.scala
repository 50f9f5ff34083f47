package org.apache.spark.sql.sparkext.exec

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{CodegenSupport, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}

/** A note above Spark's own join with the reason why it is not a pipelined one. It has no other effect and costs
  * nothing: its generated code is the child's.
  */
case class DeclinedJoinExec(reason: String, child: SparkPlan) extends UnaryExecNode with CodegenSupport {

  override def nodeName: String = "DeclinedPipelinedJoin"
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override def simpleString(maxFields: Int): String = s"$nodeName: $reason"
  override def verboseStringWithOperatorId(): String = s"\n$formattedNodeName\nReason: $reason\n"

  override protected def doExecute(): RDD[InternalRow] = child.execute()

  override def supportCodegen: Boolean = child match {
    case generated: CodegenSupport => generated.supportCodegen
    case _ => false
  }
  override def inputRDDs(): Seq[RDD[InternalRow]] = child.asInstanceOf[CodegenSupport].inputRDDs()
  override protected def doProduce(context: CodegenContext): String =
    child.asInstanceOf[CodegenSupport].produce(context, this)
  override def doConsume(context: CodegenContext, input: Seq[ExprCode], row: ExprCode): String =
    consume(context, input)

  override protected def withNewChildInternal(newChild: SparkPlan): DeclinedJoinExec = copy(child = newChild)
}
