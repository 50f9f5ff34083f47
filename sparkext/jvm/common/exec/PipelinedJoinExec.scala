package org.apache.spark.sql.sparkext.exec

import java.util.UUID

import scala.jdk.CollectionConverters._

import org.json4s.JsonAST.{JNull, JValue}
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.{InterruptibleIterator, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, Expression, UnsafeProjection}
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, OneRowRelation}
import org.apache.spark.sql.catalyst.plans.physical.{
  CoalescedHashPartitioning,
  HashPartitioning,
  Partitioning,
  PartitioningCollection,
  RangePartitioning,
  UnknownPartitioning
}
import org.apache.spark.sql.execution.{SQLExecution, SparkPlan}
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec
import org.apache.spark.sql.execution.metric.SQLMetrics
import org.apache.spark.sql.sparkext.build_sides.{
  AheadBuilder,
  BuildSidePublisher,
  PipelinedBuild,
  Publications,
  PublishedBuildSide
}
import org.apache.spark.sql.sparkext.groups.PlannedGroups
import org.apache.spark.sql.sparkext.joins.{ColumnRef, PlannedFilter, PlannedJoin, PlannedTop}
import org.apache.spark.sql.sparkext.protocol.{PipelineRuns, SentColumns, Settings, TaskReports, WorkOrder}
import org.apache.spark.sql.sparkext.python.{Formulas, PythonRun, UnorderedRDD, WorkerAnswers}
import org.apache.spark.sql.sparkext.shuffle.{Exchange, OutgoingRows}
import org.apache.spark.sql.types.ByteType
import org.apache.spark.sql.vectorized.ColumnarBatch

/** A chain of joins, or a scan, as one operator: `probe` streams through the indexes of all `builds` inside Python
  * workers.
  *
  * Output column i is `output(i)` and is read from `origins(i)`. Only rows for which `filter` holds are emitted. With a
  * `grouping`, workers emit groups of these rows instead, like a partial aggregate of Spark's. Build sides run
  * concurrently when the operator is prepared, each as a job of its own.
  *
  * `parts`: set if the first join emits unmatched build rows without an `exchange`. The probe side is then shuffled
  * inside the operator. A shuffle below the operator would be a stage of its own to adaptive execution, which would use
  * the statistics of that stage as those of the join.
  *
  * `exchange`: set if both sides of some joins are repartitioned by their keys. Their rows are then received from other
  * tasks.
  *
  * The operator emits rows. Emitting columns, for Spark's generated code to read, was measured to be no faster, with or
  * without an aggregate above.
  *
  * `otherwise`: the same joins as Spark's own, over the output of the children. They run if a build side turns out not
  * to fit, see [[RuntimeFallback]].
  *
  * `top`: set by [[TopRows]] if only the first rows are needed. The operator may emit other rows as well.
  *
  * `inPlace`: set by [[RowsInPlace]] if rows need not be copied. `asBuild`: set by [[OwnBuilds]] if the operator
  * produces a build side, or the source, of another pipeline.
  */
case class PipelinedJoinExec(
    probe: SparkPlan,
    builds: Seq[SparkPlan],
    joins: Seq[PlannedJoin],
    output: Seq[Attribute],
    origins: Seq[ColumnRef],
    filter: Option[PlannedFilter],
    grouping: Option[PlannedGroups],
    parts: Option[Parts],
    exchange: Option[Exchange],
    otherwise: LogicalPlan,
    top: Option[PlannedTop] = None,
    inPlace: Boolean = false,
    asBuild: Boolean = false)
    extends SparkPlan {

  override def nodeName: String = if (joins.isEmpty) "PipelinedAggregate" else "PipelinedJoin"
  override def children: Seq[SparkPlan] = probe +: builds
  override def producedAttributes: AttributeSet = outputSet -- inputSet

  /** Labels and formulas name columns as the query does, and Spark's own joins distinguish columns by their ids. Both
    * would prevent equal pipelines from being reused, so they are removed.
    */
  override protected def doCanonicalize(): SparkPlan = super.doCanonicalize() match {
    case operator: PipelinedJoinExec =>
      operator.copy(
        joins = joins.map(_.copy(label = "", formula = None)),
        filter = filter.map(_.copy(formula = None, described = "")),
        asBuild = false,
        grouping = grouping.map(_.copy(formulas = Nil, output = Nil, described = "", partial = null)),
        top = top.map(_.copy(described = "")),
        otherwise = PipelinedJoinExec.Canonical
      )
    case other => other
  }

  /** Unless the operator repartitions the probe side, a row is emitted in the partition of its probe row. */
  override def outputPartitioning: Partitioning = probe.outputPartitioning match {
    case _ if parts.isDefined => UnknownPartitioning(parts.get.count)
    case _ if exchange.isDefined => exchange.get.partitioning(output)
    case partitioning if grouping.exists(_.isExpanded) => UnknownPartitioning(partitioning.numPartitions)
    case partitioning: Expression if partitioning.references.subsetOf(outputSet) && !reachesBuilds(partitioning) =>
      partitioning
    case partitioning => UnknownPartitioning(partitioning.numPartitions)
  }

  /** Whether Spark's use of this partitioning might affect the build sides. That is the case for the partitioning that
    * a source reports. Before 4.3, a join above that uses the partitions of its sources makes all scans below it read
    * the same partitions. Before 4.2, a source's partitioning is a `HashPartitioningLike`, so hash partitionings are
    * recognised by their own classes.
    */
  private def reachesBuilds(partitioning: Expression): Boolean =
    builds.exists(_.exists(_.isInstanceOf[BatchScanExec])) && partitioning.exists {
      case _: HashPartitioning | _: CoalescedHashPartitioning | _: RangePartitioning | _: PartitioningCollection =>
        false
      case other => other.isInstanceOf[Partitioning]
    }

  override lazy val metrics = PipelineMetrics.create(sparkContext)

  @transient private[sparkext] lazy val settings = new Settings(conf)

  @transient private[sparkext] lazy val inputs = new PipelineInputs(probe, builds, joins, parts, exchange, settings)

  @transient private lazy val sending: Option[PipelineExchange] = exchange.map(new PipelineExchange(this, _))

  /** The build sides that run in the JVM, the build sides that workers materialise and that may not fit, the sides that
    * are exchanged, and a source that workers materialise.
    */
  @transient private lazy val publications: Publications = new Publications(
    session,
    inputs.ownBuilds.zipWithIndex.collect {
      case (Left(_), number) if !inputs.isSent(number) =>
        number -> new BuildSidePublisher(
          sparkContext,
          builds(number),
          inputs.buildColumns(number).toOption,
          SentColumns.like(builds(number).output),
          joins(number).label,
          joins(number).maxBuildBytes,
          conf.sessionLocalTimeZone,
          ordered = joins(number).asOf.isDefined
        )
      case (Right(_), number) if inputs.mayNotFit(number) =>
        number -> builtAhead(number, s"build side of the join on ${joins(number).label}")
    }.toMap ++ sending.map(_.sides).getOrElse(Map.empty) ++ madeSource.map(_ =>
      PipelinedJoinExec.Source -> builtAhead(PipelinedJoinExec.Source, "rows that workers derive"))
  )

  /** The work order for the rows of the probe side, if workers materialise them. */
  private def madeSource: Option[JValue] = inputs.probeMade.toOption.map(_.order(settings.maxBuildBytes))

  /** The work order includes the other build sides, because some of them determine which rows of this build side can be
    * dropped.
    */
  private def builtAhead(number: Int, described: String): AheadBuilder = {
    val command = WorkOrder.ahead(
      spec(whole = false),
      settings.forWorkers,
      WorkerAnswers.Answer,
      number,
      inputs.ownBuilds.zip(joins).map { case (build, join) => build.fold(_ => JNull, _.order(join.maxBuildBytes)) },
      madeSource,
      tasksSharing
    )
    new AheadBuilder(sparkContext, WorkerAnswers.run(this, command), described)
  }

  /** `whole`: whether each group is emitted once, aggregated over all of its rows. */
  private[sparkext] def spec(whole: Boolean): JValue =
    WorkOrder.spec(
      joins,
      origins,
      filter.map(_.spec),
      grouping.map(_.spec(whole)),
      top,
      probe.output.length,
      ownsBuild,
      parts.map(_.owner))

  /** Whether the first join emits unmatched build rows. */
  private[sparkext] def ownsBuild: Boolean = joins.headOption.exists(_.kind == "full")

  /** `form`, with the tags of this operator, by which reports are found. */
  private[sparkext] def as(form: PipelinedJoinExec): PipelinedJoinExec = {
    form.copyTagsFrom(this)
    form
  }

  /** The pipelines that workers run to derive the build sides and the source of this one. */
  private[sparkext] def pipelinesWithin: Seq[PipelinedJoinExec] =
    if (fallback.fate.isDefined) Nil
    else (inputs.probeMade +: inputs.ownBuilds).collect { case Right(build: PipelinedBuild) => build.operator }

  /** The expressions that may fail, including those of build sides. */
  private[sparkext] def formulas: Formulas = Formulas(
    joins.map(_.formula),
    filter.flatMap(_.formula),
    grouping.map(_.formulas).getOrElse(Nil),
    builds = inputs.ownBuilds.map(_.toOption.flatMap(_.formulas)),
    source = inputs.probeMade.toOption.flatMap(_.formulas)
  )

  override protected def doPrepare(): Unit = if (!asBuild) publications

  override protected def doExecute(): RDD[InternalRow] = publications.awaited() match {
    case Right(sides) => rowsOf(batches(sides, None))
    case Left(tooLarge) => fallback.begin(tooLarge).execute()
  }

  /** The batches that tasks emit for `rows`, which are sent to other tasks: an account of the written rows, or the rows
    * as blocks. None if the pipeline does not run.
    */
  private[sparkext] def outgoing(rows: OutgoingRows): Option[RDD[ColumnarBatch]] =
    publications.awaited().toOption.map(sides => batches(sides, Some(rows)))

  private def rowsOf(batches: RDD[ColumnarBatch]): RDD[InternalRow] = {
    val columns = output
    val copied = !inPlace
    new UnorderedRDD(batches).mapPartitionsInternal { batches =>
      val copy = UnsafeProjection.create(columns, columns)
      val rows = batches.flatMap(_.rowIterator.asScala) // always the same object
      if (copied) rows.map(copy)
      else {
        val inPlace = new RowInPlace(copy)
        rows.map(inPlace.withLeft)
      }
    }
  }

  @transient private lazy val fallback = new PipelineFallback(this)

  private def batches(sides: Map[Int, PublishedBuildSide], outgoing: Option[OutgoingRows]): RDD[ColumnarBatch] = {
    report(sides.values)
    // PySpark creates an object for each row without columns, which takes longer than any join.
    val rows = if (output.isEmpty) SentColumns.of(Seq(ByteType)) else SentColumns.like(output)
    val transport = outgoing.map(_.transport)
    val result = transport.map(_.result).getOrElse(rows)
    val routed = sending.flatMap(_.routes())
    val pipeline = spec(whole = false)
    val inWaves = exchange.filter(_.streamed.isEmpty)
    val log = PipelineRuns.begin(this, sparkContext, inWaves.map(by => compact(render(pipeline)) + by.builds + result))
    val reports = new TaskReports(
      UUID.randomUUID().toString,
      inputs.ownBuilds.indices.filter(inputs.ownBuilds(_).isRight).toSet,
      metrics,
      log.reports,
      log.worked)
    val command = WorkOrder.command(
      pipeline,
      settings.forWorkers,
      result,
      inputs.probeScan.toOption,
      madeSource,
      inputs.ownBuilds.zipWithIndex.map {
        case (Right(build), number) => build.order(joins(number).maxBuildBytes)
        case (_, number) if inputs.isSent(number) => JNull
        case (_, number) => WorkOrder.broadcast(sides(number), SentColumns.like(builds(number).output))
      },
      reports.run,
      tasksSharing,
      sending.map(_.order(routed)),
      outgoing
    )
    val run = PythonRun.of(
      this,
      command,
      sides.values.map(_.broadcast).toSeq,
      inputs.sentProbe,
      result,
      PipelineMetrics.forRunner(metrics))
    val most =
      if (routed.isDefined) 1 else math.min(settings.morselRows, Int.MaxValue).toInt // each block is sent at once
    inputs.probeColumns match {
      case Right(input) if transport.forall(_.maps.isEmpty) =>
        input.execute().mapPartitionsWithIndexInternal { (partition, parts) =>
          reports.collectFrom(TaskContext.get())
          transport.foreach(_.announce(TaskContext.get()))
          run.onColumns(parts.next(), partition)
        }
      case _ =>
        val received = sending.fold(inputs.probeRows)(_.input(routed, log))
        val tasks = transport.flatMap(_.maps).map(received.coalesce(_)).getOrElse(received)
        tasks.mapPartitionsWithIndexInternal { (partition, rows) =>
          val task = TaskContext.get()
          reports.collectFrom(task)
          transport.foreach(_.announce(task))
          run.onRows(new InterruptibleIterator(task, rows), most, partition)
        }
    }
  }

  /** The number of tasks that share an executor's memory, if known. In local mode it is the driver's number of task
    * partitions.
    */
  private def tasksSharing: Option[Int] = {
    val cores = if (sparkContext.isLocal) Some(sparkContext.defaultParallelism)
    else sparkContext.getConf.getOption("spark.executor.cores").map(_.toInt)
    cores.map(_ / sparkContext.getConf.getInt("spark.task.cpus", 1)).map(math.max(1, _))
  }

  private def report(sides: Iterable[PublishedBuildSide]): Unit = {
    metrics("buildRows").set(sides.map(_.rows).sum)
    metrics("buildBytes").set(sides.map(_.bytes).sum)
    postToDriver(Seq("buildRows", "buildBytes"))
  }

  private[sparkext] def postToDriver(names: Seq[String]): Unit = {
    val execution = sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)
    SQLMetrics.postDriverMetricUpdates(sparkContext, execution, names.map(metrics))
  }

  /** Spark's own joins are shown below the operator, if they run in its place. */
  override def innerChildren: Seq[QueryPlan[_]] = super.innerChildren ++ fallback.plan

  override def simpleString(maxFields: Int): String = described(nodeName)(_.inBrief)

  override def verboseStringWithOperatorId(): String = described(s"\n$formattedNodeName\n")(_.inFull(formattedNodeName))

  private def described(name: String)(text: PipelineDescription => String): String =
    PipelineDescription.of(this, name, fallback.fate)(text)

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[SparkPlan]): PipelinedJoinExec =
    copy(probe = newChildren.head, builds = newChildren.tail)
}

object PipelinedJoinExec {

  /** Denotes the probe side in place of a join number. Python's `SOURCE`. */
  private[sparkext] val Source = -1

  /** Replaces Spark's own joins in canonical plans, so that plans with equal results are equal. */
  private[sparkext] val Canonical = OneRowRelation()
}
