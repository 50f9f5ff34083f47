package org.apache.spark.sql.sparkext.exec

import org.apache.spark.{PartitionIdPassthrough, ShuffleDependency}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.plans.physical.{
  HashPartitioning,
  Partitioning,
  SinglePartition,
  UnknownPartitioning
}
import org.apache.spark.sql.execution.{LeafExecNode, RDDScanExec, SortExec, SparkPlan, UnsafeRowSerializer}
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.sparkext.expressions.{Comparison, Failing, Widened}
import org.apache.spark.sql.sparkext.groups.PlannedGroups
import org.apache.spark.sql.sparkext.joins.{
  ColumnRef,
  JoinChain,
  JoinStage,
  PlannedAsOf,
  PlannedComparison,
  PlannedJoin,
  StageComparison
}
import org.apache.spark.sql.sparkext.planning.StageAsOf
import org.apache.spark.sql.sparkext.shim.SparkShim
import org.apache.spark.sql.sparkext.shuffle.PartitioningByIndex
import org.apache.spark.sql.types._

/** A source of a pipeline as a leaf of Spark's own joins: the rows that the pipeline would have sent to workers.
  *
  * `plan`: the plan that produces these rows, once the operator runs.
  */
case class SourceRows(number: Int, override val output: Seq[Attribute], bytes: BigInt, plan: Option[SparkPlan] = None)
    extends LeafNode {
  override def computeStats(): Statistics = Statistics(bytes)
}

/** A leaf to the rules of physical plans: they have already been applied to `plan`, as a child of the pipeline. */
case class SourceRowsExec(number: Int, plan: SparkPlan) extends LeafExecNode {
  override def nodeName: String = "SourceRows"
  override def output: Seq[Attribute] = plan.output
  override def outputPartitioning: Partitioning = plan.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = plan.outputOrdering
  override def simpleString(maxFields: Int): String = s"$nodeName of child ${number + 1} of the pipeline"
  override def verboseStringWithOperatorId(): String = s"\n$formattedNodeName\nChild ${number + 1} of the pipeline\n"
  override protected def doExecute(): RDD[InternalRow] = plan.execute()
}

/** Spark's own joins in place of a pipeline that turns out at run time not to fit.
  *
  * They are planned like any query, over the rows that the pipeline's sources send. Spark's work below the pipeline
  * (stages of adaptive execution, subqueries, chosen partitions) is already done, and is neither planned nor run again.
  * The operators above see no difference: the columns, and the partitions if they are promised, are those of the
  * pipeline.
  *
  * `sizes`: lower bounds of the bytes of build sides, as far as they are known.
  */
class RuntimeFallback(operator: PipelinedJoinExec, sizes: Map[Int, Long]) {
  private val partitioning = operator.outputPartitioning
  private val home = Alias(SparkPartitionID(), "home")()

  /** `atHome`: whether rows have to be in the partitions of their probe rows. `inOne`: whether all rows have to be in
    * one partition. The operators above may rely on either.
    */
  private val atHome = partitioning match {
    case _: UnknownPartitioning | _: PartitioningByIndex => false
    case _ => true
  }
  private val inOne = partitioning.numPartitions == 1

  val plan: SparkPlan =
    SparkShim.executed(
      operator.session,
      RuntimeFallback.over(operator, sizes, Some(home).filter(_ => atHome && !inOne)))

  def execute(): RDD[InternalRow] = {
    val joined =
      if (inOne) Parts.shuffled(plan.execute(), columns, SinglePartition)
      else if (atHome) broughtHome(plan.execute())
      else plan.execute()
    val found = operator.grouping.map(grouped(_, joined)).getOrElse(joined)
    val rows = partitioning match {
      case partitions: PartitioningByIndex =>
        Parts.shuffled(
          found,
          operator.output,
          HashPartitioning(partitions.keys, operator.conf.numShufflePartitions))
      case _ => found
    }
    val count = operator.longMetric("numOutputRows")
    rows.mapPartitionsInternal(_.map { row =>
      count += 1
      row
    })
  }

  /** The output columns of Spark's own joins, without the home partition of each row. */
  private def columns: Seq[Attribute] = operator.otherwise.output

  /** Spark's own partial aggregate of these rows. */
  private def grouped(grouping: PlannedGroups, rows: RDD[InternalRow]): RDD[InternalRow] = {
    val scanned = RDDScanExec(columns, rows, "joined")
    val ordering = grouping.partial.requiredChildOrdering.head
    val child = if (ordering.isEmpty) scanned else SortExec(ordering, global = false, scanned)
    grouping.partial.withNewChildren(Seq(child)).execute()
  }

  /** Shuffles rows to the partitions whose numbers are in their last column. */
  private def broughtHome(rows: RDD[InternalRow]): RDD[InternalRow] = Parts.shuffledBy(rows.sparkContext) { metrics =>
    val (output, sent, at) = (columns, columns :+ home.toAttribute, columns.length)
    val numbered = rows.mapPartitionsInternal { rows =>
      val projection = UnsafeProjection.create(output, sent)
      rows.map(row => (row.getInt(at), projection(row).copy(): InternalRow))
    }
    new ShuffleDependency[Int, InternalRow, InternalRow](
      numbered,
      new PartitionIdPassthrough(partitioning.numPartitions),
      new UnsafeRowSerializer(columns.length),
      shuffleWriterProcessor = ShuffleExchangeExec.createShuffleWriteProcessor(metrics)
    )
  }
}

object RuntimeFallback {

  /** Whether a plan is one of Spark's own joins over the sources of a pipeline. */
  def runs(plan: LogicalPlan): Boolean = plan.exists {
    case _: SourceRows => true
    case LogicalQueryStage(logical, _) => runs(logical)
    case _ => false
  }

  /** The logical plan of a chain of joins over the columns that each source sends. It emits `wanted`, for the rows that
    * pass `filters`.
    */
  def joins(
      chain: JoinChain,
      planned: Seq[PlannedJoin],
      sources: Seq[(LogicalPlan, Seq[NamedExpression])],
      wanted: Seq[Attribute],
      filters: Seq[Expression]): LogicalPlan = {
    val rows = sources.zipWithIndex.map { case ((plan, columns), number) =>
      SourceRows(number, columns.map(_.toAttribute), Project(columns, plan).stats.sizeInBytes)
    }
    val all = chain.stages.indices.foldLeft[LogicalPlan](rows.head) { (joined, number) =>
      new Stage(chain, chain.stages(number), planned(number), rows.map(_.output)).join(joined, rows(number + 1))
    }
    // Some filters are also applied above the operator. Here they may be pushed down, as Spark does, up to the first
    // one that may fail.
    val pushed = chain.filters.reverse.map(chain.atSources).takeWhile(!Failing.may(_))
    val filtered =
      (filters.map(chain.atSources) ++ pushed).distinct.reduceOption(And).map(Filter(_, all)).getOrElse(all)
    Project(wanted.map(column => renamed(chain.source(column), column)), filtered)
  }

  private def renamed(source: Attribute, column: Attribute): NamedExpression =
    if (source.exprId == column.exprId) source else Alias(source, column.name)(column.exprId)

  /** The operator's joins over its children. `home`: an additional column, computed from each probe row. */
  private def over(operator: PipelinedJoinExec, sizes: Map[Int, Long], home: Option[NamedExpression]): LogicalPlan = {
    val filled = operator.otherwise.transformUp {
      case rows: SourceRows if rows.number == 0 =>
        val probe = rows.copy(plan = Some(operator.probe))
        home.map(column => Project(probe.output :+ column, probe)).getOrElse(probe)
      case rows: SourceRows =>
        val known = sizes.get(rows.number - 1).map(BigInt(_))
        rows.copy(plan = Some(operator.builds(rows.number - 1)), bytes = (known ++ Seq(rows.bytes)).max)
    }
    home.map(column => kept(filled, column.toAttribute)).getOrElse(filled)
  }

  /** The plan with one more column of the probe side, passed through all projections. */
  private def kept(plan: LogicalPlan, column: Attribute): LogicalPlan = plan match {
    case Project(columns, child) =>
      Project(columns :+ column, if (child.output.contains(column)) child else kept(child, column))
    case Filter(condition, child) => Filter(condition, kept(child, column))
    case other => throw new IllegalStateException(s"no columns chosen: $other")
  }

  /** One join over the columns that are sent. Keys that sources compute are columns of the sources. */
  private class Stage(chain: JoinChain, stage: JoinStage, planned: PlannedJoin, sources: Seq[Seq[Attribute]]) {
    def join(probe: LogicalPlan, build: SourceRows): LogicalPlan = stage.asOf match {
      case Some(near) => asOf(near, planned.asOf.get, probe, build)
      case None => Join(
          probe,
          build,
          joinType,
          (keys(build) ++ guard ++ ranges(build) ++ conditions).reduceOption(And),
          JoinHint.NONE)
    }

    private def joinType: JoinType = stage.kind match {
      case "inner" => Inner
      case "left" => LeftOuter
      case "full" => FullOuter
      case "semi" => LeftSemi
      case "anti" => LeftAnti
      case "existence" => ExistenceJoin(stage.existence.get)
    }

    private def keys(build: SourceRows): Seq[Expression] = comparisons(stage.keys, planned.keys, build)

    private def comparisons(
        compared: Seq[StageComparison],
        places: Seq[PlannedComparison],
        build: SourceRows): Seq[Expression] = compared.zip(places).map { case (comparison, place) =>
      Comparison(
        comparison.operator,
        probed(comparison.probe, place.probe),
        indexed(comparison.build, build.output(place.build)))
    }

    /** The guard precedes the ranges, whose sums wrap around instead of failing. On pairs for which a sum overflows,
      * the guard fails, or is false, before the ranges are tested.
      */
    private def guard: Option[Expression] = stage.guard.map(chain.atSources)

    private def ranges(build: SourceRows): Seq[Expression] = comparisons(stage.ranges, planned.ranges, build)

    private def conditions: Seq[Expression] = stage.conditions.map(chain.atSources)

    private def probed(key: Expression, place: ColumnRef): Expression =
      indexed(chain.atSources(key), sources(place.source)(place.column))

    private def indexed(key: Expression, sent: Attribute): Expression = key match {
      case Widened(_) => key
      case _ => sent
    }

    private def asOf(near: StageAsOf, place: PlannedAsOf, probe: LogicalPlan, build: SourceRows): LogicalPlan = {
      val value = probed(near.probe, place.probe)
      AsOfJoin(
        probe,
        build,
        value,
        indexed(near.build, build.output(place.build)),
        keys(build).reduceOption(And),
        joinType,
        // If equal values are excluded, so is the end of the interval.
        near.tolerance.map(units => distance(if (near.exact) units else units + 1, value.dataType)),
        near.exact,
        AsOfJoinDirection(near.direction)
      )
    }

    private def distance(units: Long, dataType: DataType): Literal = dataType match {
      case DateType =>
        Literal.create(
          java.time.Duration.ofDays(units),
          DayTimeIntervalType(DayTimeIntervalType.DAY, DayTimeIntervalType.DAY))
      case TimestampType | TimestampNTZType => Literal(units, DayTimeIntervalType())
      case decimal: DecimalType =>
        Literal(
          Decimal(BigDecimal(BigInt(units), decimal.scale)),
          DecimalType(Decimal.MAX_LONG_DIGITS + 1, decimal.scale))
      case _ => Literal(units)
    }
  }
}
