package org.apache.spark.sql.sparkext.build_sides

import org.json4s.JsonAST.JValue

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.execution._
import org.apache.spark.sql.sparkext.exec.PipelinedJoinExec
import org.apache.spark.sql.sparkext.expressions.{
  Expressions,
  Failing,
  PairCondition,
  Wording,
  WorkerEvaluator,
  WorkerExpression
}
import org.apache.spark.sql.sparkext.groups.WholeGroupsExec
import org.apache.spark.sql.sparkext.joins.ColumnRef
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons, SentColumns, WorkOrder}
import org.apache.spark.sql.sparkext.python.Formulas
import org.apache.spark.sql.sparkext.scan.{FusedScan, PeeledPlan}

/** A build side that a pipeline over files derives, with `filter` and `columns` applied to the pipeline's output. No
  * row of it passes through the JVM.
  */
case class PipelinedBuild(
    operator: PipelinedJoinExec,
    scan: FusedScan,
    builds: Seq[OwnBuild],
    whole: Boolean,
    filter: Option[Expression],
    columns: Seq[Expression],
    projection: JValue)
    extends OwnBuild {

  override def order(maxBytes: Long): JValue = WorkOrder.pipelined(
    operator.spec(whole),
    scan,
    builds.zip(operator.joins).map { case (build, join) => build.order(join.maxBuildBytes) },
    SentColumns.like(operator.output),
    projection,
    SentColumns.of(columns.map(_.dataType)),
    maxBytes
  )

  /** The number of joined rows or groups is not known in advance. */
  override def mayExceed(maxBytes: Long): Boolean = true

  override def formulas: Option[Formulas] =
    Some(operator.formulas.copy(having = filter.flatMap(formula), results = columns.map(formula)))

  private def formula(expression: Expression): Option[PairCondition] =
    if (!Failing.may(expression)) None
    else Some(PairCondition(
      expression,
      expression.references.toSeq.map(column => column -> PipelinedBuild.place(operator)(column))))

  override def way: String = "pipelined"
  override def described: String = s"derived by a separate pipeline${if (whole) ", of whole groups" else ""}"
}

object PipelinedBuild {

  /** The pipeline that produces the rows of `plan`, below operators that only filter and compute them. */
  def below(plan: SparkPlan): Option[PipelinedJoinExec] = PeeledPlan.source(plan) match {
    case pipeline: PipelinedJoinExec => Some(pipeline).filter(_.grouping.isEmpty)
    case WholeGroupsExec(_, _, pipeline: PipelinedJoinExec, _) => Some(pipeline)
    case _ => None
  }

  /** The operator of complete groups that produces the rows of `plan`, below operators that only filter and compute
    * them.
    */
  def wholeBelow(plan: SparkPlan): Option[WholeGroupsExec] =
    Some(PeeledPlan.source(plan)).collect { case groups: WholeGroupsExec => groups }

  def of(plan: SparkPlan): Either[String, PipelinedBuild] =
    for {
      peeled <- PeeledPlan.of(plan, refused)
      pipeline <- pipelineOf(peeled.source).toRight(s"not a pipeline: ${peeled.source.nodeName}")
      (operator, results) = pipeline
      _ <- Reasons.check(operator.parts.isEmpty, Reason("FULL_JOIN_SHUFFLED"))
      _ <- Reasons.check(operator.exchange.isEmpty, Reason("PARTITIONED_JOIN"))
      scan <- operator.inputs.probeScan.left.map(reason => Reason("PROBE_SIDE", reason))
      builds = operator.inputs.ownBuilds
      _ <- builds.zipWithIndex.collectFirst { case (Left(reason), number) =>
        Reason("BUILD_SIDE", number + 1, reason)
      }.toLeft(())
      atResults = Expressions.replacing(AttributeMap(peeled.source.output.zip(results)))
      filter = Failing.inTurn(peeled.filters.flatten.map(atResults))
      columns = peeled.outputs.map(atResults)
      projection <- projected(operator, filter, columns)
    } yield PipelinedBuild(
      operator,
      scan,
      builds.flatMap(_.toOption),
      peeled.source.isInstanceOf[WholeGroupsExec],
      filter,
      columns,
      projection)

  /** The pipeline of an operator, and the operator's output in terms of the pipeline's output. */
  private def pipelineOf(source: SparkPlan): Option[(PipelinedJoinExec, Seq[Expression])] = source match {
    case pipeline: PipelinedJoinExec => Some(pipeline -> pipeline.output)
    case WholeGroupsExec(results, _, pipeline: PipelinedJoinExec, _) =>
      Some(pipeline -> results.map(Expressions.unnamed))
    case _ => None
  }

  private val refused: PartialFunction[SparkPlan, Option[String]] = {
    case FilterExec(condition, _) if !condition.deterministic =>
      Some(Reason("FILTER_NOT_DETERMINISTIC", Wording.of(condition)))
    case ProjectExec(columns, _) =>
      columns.find(!_.deterministic).map(column => Reason("COLUMN_NOT_DETERMINISTIC", Wording.of(column)))
  }

  def place(operator: PipelinedJoinExec)(column: Attribute): ColumnRef =
    ColumnRef(0, operator.output.indexWhere(_.exprId == column.exprId))

  private def projected(
      operator: PipelinedJoinExec,
      filter: Option[Expression],
      columns: Seq[Expression]): Either[String, JValue] = {
    def written(expression: Expression): Either[String, JValue] =
      WorkerEvaluator.Arrow.of(expression, place(operator)).left.map(part =>
        Reason("EXPRESSION_OF_SPARK", part))
    for {
      condition <- Reasons.all(filter.toSeq.map(written))
      places <- Reasons.all(columns.map {
        case column: Attribute => WorkerExpression.of(column, place(operator)).map(_.json)
        case computed => written(computed)
      })
    } yield WorkOrder.projection(condition.headOption, places)
  }
}
