package org.apache.spark.sql.sparkext

import org.json4s.JsonAST.JValue

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.execution._

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
  def below(plan: SparkPlan): Option[PipelinedJoinExec] = source(plan) match {
    case pipeline: PipelinedJoinExec => Some(pipeline).filter(_.grouping.isEmpty)
    case WholeGroupsExec(_, _, pipeline: PipelinedJoinExec, _) => Some(pipeline)
    case _ => None
  }

  /** The operator of complete groups that produces the rows of `plan`, below operators that only filter and compute
    * them.
    */
  def wholeBelow(plan: SparkPlan): Option[WholeGroupsExec] =
    Some(source(plan)).collect { case groups: WholeGroupsExec => groups }

  @scala.annotation.tailrec
  private def source(plan: SparkPlan): SparkPlan = plan match {
    case WholeStageCodegenExec(child) => source(child)
    case InputAdapter(child) => source(child)
    case FilterExec(_, child) => source(child)
    case ProjectExec(_, child) => source(child)
    case other => other
  }

  def of(plan: SparkPlan): Either[String, PipelinedBuild] = for {
    peeled <- peel(plan)
    operator = peeled.operator
    _ <- JoinStage.check(operator.parts.isEmpty, "a full outer join shuffles the rows")
    _ <- JoinStage.check(operator.exchange.isEmpty, "a partitioned join")
    scan <- operator.inputs.probeScan.left.map(reason => s"its probe side: $reason")
    builds = operator.inputs.ownBuilds
    _ <- builds.zipWithIndex.collectFirst { case (Left(reason), number) =>
      s"its build side ${number + 1}: $reason"
    }.toLeft(())
    filter = Failing.inTurn(peeled.filters)
    projection <- projected(operator, filter, peeled.columns)
  } yield PipelinedBuild(operator, scan, builds.flatMap(_.toOption), peeled.whole, filter, peeled.columns, projection)

  /** `filters` and `columns` refer to the output of `operator`. */
  private case class Peeled(
      operator: PipelinedJoinExec,
      whole: Boolean,
      filters: Seq[Expression],
      columns: Seq[Expression])

  private def peel(plan: SparkPlan): Either[String, Peeled] = plan match {
    case pipeline: PipelinedJoinExec => Right(Peeled(pipeline, whole = false, Nil, pipeline.output))
    case WholeGroupsExec(results, _, pipeline: PipelinedJoinExec, _) =>
      Right(Peeled(pipeline, whole = true, Nil, results.map(Expressions.unnamed)))
    case WholeStageCodegenExec(child) => peel(child)
    case InputAdapter(child) => peel(child)
    case FilterExec(condition, child) =>
      for {
        below <- peel(child)
        _ <- JoinStage.check(!Trees.isDeep(condition), "a filter nested too deeply")
        _ <- JoinStage.check(condition.deterministic, s"a filter that is not deterministic: ${Wording.of(condition)}")
      } yield below.copy(filters = below.filters :+ over(child, below)(condition))
    case ProjectExec(columns, child) =>
      for {
        below <- peel(child)
        _ <- JoinStage.check(!columns.exists(Trees.isDeep), "a column nested too deeply")
        _ <- columns.find(!_.deterministic).map(column =>
          s"a column that is not deterministic: ${Wording.of(column)}").toLeft(())
      } yield below.copy(columns = columns.map(column => over(child, below)(Expressions.unnamed(column))))
    case other => Left(s"not a pipeline: ${other.nodeName}")
  }

  private def over(child: SparkPlan, below: Peeled): Expression => Expression =
    Expressions.replacing(AttributeMap(child.output.zip(below.columns)))

  def place(operator: PipelinedJoinExec)(column: Attribute): ColumnRef =
    ColumnRef(0, operator.output.indexWhere(_.exprId == column.exprId))

  private def projected(
      operator: PipelinedJoinExec,
      filter: Option[Expression],
      columns: Seq[Expression]): Either[String, JValue] = {
    def written(expression: Expression): Either[String, JValue] =
      WorkerEvaluator.Arrow.of(expression, place(operator)).left.map(part =>
        s"an expression that only Spark evaluates: $part")
    val places = columns.map {
      case column: Attribute => WorkerExpression.of(column, place(operator)).map(_.json)
      case computed => written(computed)
    }
    val condition = filter.map(written)
    (condition.toSeq ++ places).collectFirst { case Left(reason) => reason }.toLeft(
      WorkOrder.projection(condition.flatMap(_.toOption), places.flatMap(_.toOption)))
  }
}
