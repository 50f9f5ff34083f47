package org.apache.spark.sql.sparkext

import java.util.UUID

import org.json4s.JsonAST.JValue
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.{InterruptibleIterator, TaskContext}
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, BoundReference, Expression, GenericInternalRow, JoinedRow, UnsafeProjection}
import org.apache.spark.sql.catalyst.plans.QueryPlan
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, OneRowRelation}
import org.apache.spark.sql.catalyst.plans.physical.{HashPartitioningLike, Partitioning, PartitioningCollection, RangePartitioning, UnknownPartitioning}
import org.apache.spark.sql.execution.{ShuffledRowRDD, SparkPlan, SQLExecution, UnsafeRowSerializer}
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.metric.{SQLMetrics, SQLShuffleReadMetricsReporter, SQLShuffleWriteMetricsReporter}
import org.apache.spark.sql.types.{ByteType, DataType, IntegerType, StringType, StructField, StructType}
import org.apache.spark.sql.vectorized.ColumnarBatch

/** A chain of joins as one operator: `probe` streams through the indexes of all `builds` inside Python workers.
  *
  * Output column i is `output(i)`, and comes from `origins(i)`. Build sides run when the operator is prepared, side by
  * side, each as a job of its own.
  *
  * `parts`: set where the first join emits unmatched build rows. The probe side is shuffled inside the operator then: a
  * shuffle below it would be a stage of its own to adaptive execution, which takes what it knows of the stage's rows for what
  * is known of the join's.
  *
  * It emits rows: as columns, for code that Spark generates to read, measured no faster, with or without an aggregate above.
  *
  * `otherwise`: the same joins as Spark's own, over what the children give. They run where a build side turns out not to fit, see
  * [[RuntimeFallback]].
  *
  * `inPlace`: set by [[RowsInPlace]] where rows need not be copied.
  */
case class PipelinedJoinExec(
    probe: SparkPlan,
    builds: Seq[SparkPlan],
    joins: Seq[PlannedJoin],
    output: Seq[Attribute],
    origins: Seq[ColumnRef],
    parts: Option[Parts],
    otherwise: LogicalPlan,
    inPlace: Boolean = false)
    extends SparkPlan {

  override def nodeName: String = "PipelinedJoin"
  override def children: Seq[SparkPlan] = probe +: builds
  override def producedAttributes: AttributeSet = outputSet -- inputSet

  /** Labels and formulas name columns as the query does, and Spark's own joins tell columns apart by their ids: all would keep
    * equal pipelines from being run once.
    */
  override protected def doCanonicalize(): SparkPlan = super.doCanonicalize() match {
    case operator: PipelinedJoinExec =>
      operator.copy(joins = joins.map(_.copy(label = "", formula = None)), otherwise = PipelinedJoinExec.Canonical)
    case other => other
  }

  /** Rows stay in the partition of their probe row, but for those that have none. */
  override def outputPartitioning: Partitioning = probe.outputPartitioning match {
    case _ if parts.isDefined => UnknownPartitioning(parts.get.count)
    case partitioning: Expression if partitioning.references.subsetOf(outputSet) && !reachesBuilds(partitioning) => partitioning
    case partitioning => UnknownPartitioning(partitioning.numPartitions)
  }

  /** Whether what Spark makes of this partitioning might reach the build sides: of that of a source. Before 4.3, a join above by
    * the partitions of its sources tells all scans below which of these to read.
    */
  private def reachesBuilds(partitioning: Expression): Boolean =
    builds.exists(_.exists(_.isInstanceOf[BatchScanExec])) && partitioning.exists {
      case _: HashPartitioningLike | _: RangePartitioning | _: PartitioningCollection => false
      case other => other.isInstanceOf[Partitioning]
    }

  override lazy val metrics = PipelineMetrics.create(sparkContext)

  @transient private lazy val settings = new Settings(conf)

  /** The scans that workers do, or why they do not. Files are listed and their footers read when this is first asked. */
  @transient private lazy val probeScan: Either[String, FusedScan] =
    if (parts.isDefined) Left(PipelinedJoinExec.Shuffled) else Guarded.either("scan")(FusedScan.of(probe, settings))
  @transient private lazy val buildScans: Seq[Either[String, FusedScan]] =
    builds.map(build => Guarded.either("scan")(FusedScan.of(build, settings)))

  /** What is sent as columns where workers do not scan, or why rows are. */
  @transient private lazy val probeColumns: Either[String, ColumnarInput] =
    if (probeScan.isRight) Left("workers read files")
    else if (parts.isDefined) Left(PipelinedJoinExec.Shuffled)
    else Guarded.either("columns")(ColumnarInput.of(probe))
  @transient private lazy val buildColumns: Seq[Either[String, ColumnarInput]] = builds.zip(buildScans).map {
    case (_, Right(_)) => Left("workers read files")
    case (build, _) => Guarded.either("columns")(ColumnarInput.of(build))
  }

  /** Whether workers may find that a build side which they read does not fit. */
  @transient private lazy val mayNotFit: Seq[Boolean] = builds.indices.map { number =>
    buildScans(number).exists(scan => AheadBuilder.mostBytes(builds(number), scan).forall(_ > joins(number).maxBuildBytes))
  }

  /** Those build sides that run in the JVM, and those read by workers that may not fit. */
  @transient private lazy val publications: Publications = new Publications(
    session,
    buildScans.zipWithIndex.collect {
      case (Left(_), number) => number -> new BuildSidePublisher(
          sparkContext,
          builds(number),
          buildColumns(number).toOption,
          PipelinedJoinExec.sentColumns(builds(number).output),
          joins(number).label,
          joins(number).maxBuildBytes,
          conf.sessionLocalTimeZone,
          ordered = joins(number).asOf.isDefined)
      case (Right(scan), number) if mayNotFit(number) => number -> builtAhead(scan, number)
    }.toMap)

  private def builtAhead(scan: FusedScan, number: Int): AheadBuilder = {
    val command = WorkOrder.ahead(
      spec,
      settings.forWorkers,
      AheadBuilder.Answer,
      number,
      WorkOrder.read(scan, joins(number).maxBuildBytes),
      tasksSharing)
    new AheadBuilder(
      sparkContext,
      inPython(command, Nil),
      SparkShim.pythonRunnerConf(conf),
      conf.sessionLocalTimeZone,
      joins(number).label)
  }

  private def spec: JValue = WorkOrder.spec(joins, origins, probe.output.length, parts.map(_.owner))

  private def inPython(command: Array[Byte], sides: Seq[PublishedBuildSide]): ChainedPythonFunctions =
    WorkerPython.found match {
      case Right(python) =>
        ChainedPythonFunctions(Seq(SparkShim.pythonFunction(command, python, sides.map(_.broadcast), sparkContext)))
      case Left(problem) => throw new IllegalStateException(s"no Python to run the pipelined join: $problem")
    }

  override protected def doPrepare(): Unit = publications

  override protected def doExecute(): RDD[InternalRow] = publications.awaited() match {
    case Right(sides) => rowsOf(batches(sides))
    case Left(tooLarge) => fallenBack(tooLarge).execute()
  }

  private def rowsOf(batches: RDD[ColumnarBatch]): RDD[InternalRow] = {
    val columns = output
    val copied = !inPlace
    new UnorderedRDD(batches).mapPartitionsInternal { batches =>
      val copy = UnsafeProjection.create(columns, columns)
      val rows = new RowsOfBatches(batches, copy)
      if (copied) rows.map(copy) else rows
    }
  }

  /** Spark's own joins, once they run in place of the pipeline, and why. */
  @transient @volatile private var fallback: Option[(String, RuntimeFallback)] = None

  private def fallenBack(tooLarge: TooLarge): RuntimeFallback = synchronized {
    if (fallback.isEmpty) {
      logWarning(s"Spark's own joins run instead of a pipelined one: ${tooLarge.reason}. ${PipelinedJoinExec.WaysOut}")
      fallback = Some(tooLarge.reason -> new RuntimeFallback(this, tooLarge.sizes))
    }
    PipelineRuns.fellBack(this, tooLarge.reason)
    metrics("fellBack").set(1)
    postToDriver(Seq("fellBack"))
    fallback.get._2
  }

  private def batches(sides: Map[Int, PublishedBuildSide]): RDD[ColumnarBatch] = {
    report(sides.values)
    // PySpark makes an object of each row that has no column, which takes longer than any join.
    val result = if (output.isEmpty) PipelinedJoinExec.sent(Seq(ByteType)) else PipelinedJoinExec.sentColumns(output)
    val reports = new TaskReports(
      UUID.randomUUID().toString,
      buildScans.indices.filter(buildScans(_).isRight).toSet,
      metrics,
      PipelineRuns.begin(this, sparkContext))
    val command = WorkOrder.command(
      spec,
      settings.forWorkers,
      result,
      probeScan.toOption,
      buildScans.zipWithIndex.map {
        case (Right(scan), number) => WorkOrder.read(scan, joins(number).maxBuildBytes)
        case (_, number) => WorkOrder.broadcast(sides(number), PipelinedJoinExec.sentColumns(builds(number).output))
      },
      reports.run,
      tasksSharing)
    val function = inPython(command, sides.values.toSeq)
    // The rows of a batch are sent as one struct column, and come back as one.
    val sent = StructType(
      Seq(StructField("row", probeScan.fold(_ => PipelinedJoinExec.sent(parts.map(_ => IntegerType).toSeq ++ probe.output.map(_.dataType)), _ => PipelinedJoinExec.Splits))))
    val timeZone = conf.sessionLocalTimeZone
    val runnerConf = SparkShim.pythonRunnerConf(conf)
    val runnerMetrics = PipelineMetrics.forRunner(metrics)
    val artifacts = SparkShim.artifacts
    val formulas = joins.map(_.formula)
    val most = math.min(settings.morselRows, Int.MaxValue).toInt
    probeColumns match {
      case Right(input) =>
        input.execute().mapPartitionsWithIndexInternal { (partition, parts) =>
          val task = TaskContext.get()
          reports.collectFrom(task)
          val converted = parts.next()
          val runner = new PythonRunner(function, sent, timeZone, runnerConf, runnerMetrics, artifacts) with ColumnarArrowInput {
            override protected def columns: ColumnsToArrow = converted
          }
          new PythonBatches(runner.compute(Iterator.empty, partition, task), result, formulas)
        }
      case Left(_) =>
        input().mapPartitionsWithIndexInternal { (partition, rows) =>
          val task = TaskContext.get()
          reports.collectFrom(task)
          val wrapped = new InterruptibleIterator(task, rows).map(InternalRow(_))
          val runner = new PythonRunner(function, sent, timeZone, runnerConf, runnerMetrics, artifacts) with RowArrowInput {
            override protected def mostRows: Int = most
          }
          new PythonBatches(runner.compute(Iterator.single(wrapped), partition, task), result, formulas)
        }
    }
  }

  /** The rows of the probe side, or what tells workers where to find them. */
  private def input(): RDD[InternalRow] = probeScan match {
    case Right(scan) => new SplitsRDD(sparkContext, scan.partitions, partition => compact(render(scan.splits(partition))))
    case Left(_) => parts.map(parted).getOrElse(probe.execute())
  }

  /** The rows, all of a key in one part, with a column in front: it is null but in one row more, which has the part's number. */
  private def parted(parts: Parts): RDD[InternalRow] = {
    val keys = parts.keys.map(key => BoundReference(key, probe.output(key).dataType, nullable = true))
    val shuffle = ShuffleExchangeExec.prepareShuffleDependency(
      probe.execute(),
      probe.output,
      Parts.by(keys, parts.count),
      new UnsafeRowSerializer(probe.output.length),
      SQLShuffleWriteMetricsReporter.createShuffleWriteMetrics(sparkContext))
    val rows = new ShuffledRowRDD(shuffle, SQLShuffleReadMetricsReporter.createShuffleReadMetrics(sparkContext))
    val width = probe.output.length
    rows.mapPartitionsWithIndexInternal { (part, rows) =>
      val none = InternalRow(null)
      val joined = new JoinedRow()
      Iterator.single[InternalRow](new JoinedRow(InternalRow(part), new GenericInternalRow(width))) ++ rows.map(joined(none, _))
    }
  }

  /** How many tasks share an executor's memory. In local mode that is the driver's number of task slots. */
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

  private def postToDriver(names: Seq[String]): Unit = {
    val execution = sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)
    SQLMetrics.postDriverMetricUpdates(sparkContext, execution, names.map(metrics))
  }

  private def described(number: Int): String = {
    val join = joins(number)
    val ahead = if (mayNotFit(number)) ", built ahead as it may take more" else ""
    s"${join.kind}, ${join.label}, algorithm ${join.algorithm}, build side: child ${number + 2} of ${join.maxBuildBytes} bytes at most$ahead, scan: ${scanned(buildScans(number), buildColumns(number))}"
  }

  private def scanned(scan: Either[String, FusedScan], columns: Either[String, ColumnarInput]): String =
    Redaction.redacted(scan.fold(reason => s"${if (columns.isRight) "columns" else "rows"} from Spark ($reason)", _.described))

  /** What runs in place of the pipeline shows below it. */
  override def innerChildren: Seq[QueryPlan[_]] = super.innerChildren ++ fallback.map(_._2.plan)

  private def fate: Option[String] = fallback.map { case (reason, _) => s"fell back to Spark's own joins: $reason" }

  override def simpleString(maxFields: Int): String = described(nodeName)(inBrief)

  /** Plans are shown where a query only runs, too: that must not keep it from running. */
  private def described(name: String)(text: => String): String =
    Guarded("description")(text).fold(reason => s"$name ($reason)", identity)

  private def inBrief: String = {
    val stages = joins.zip(buildScans).map { case (join, scan) =>
      s"${join.kind}: ${join.label}${if (scan.isRight) " (fused)" else ""}"
    }
    s"$nodeName ${stages.mkString("[", "; ", "]")} scan=${scanned(probeScan, probeColumns)}${if (inPlace) " rows=in place" else ""}${fate.map(told => s" $told").mkString}"
  }

  override def verboseStringWithOperatorId(): String = described(s"\n$formattedNodeName\n")(inFull)

  private def inFull: String = {
    val lines = joins.indices.map(number => s"Join ${number + 1}: ${described(number)}")
    s"""
       |$formattedNodeName
       |The rows of child 1 stream through all joins in one pass, in Python workers; the others are indexed first. A fused
       |scan is done by the workers themselves; one from Spark is not, for the reason that is given.
       |${lines.mkString("\n")}
       |Scan: ${scanned(probeScan, probeColumns)}
       |Rows: ${if (inPlace) "in place" else "copied"}
       |Run: ${fate.getOrElse("as a pipeline, or by Spark's own joins if a build side turns out not to fit")}
       |Output [${output.length}]: ${output.mkString("[", ", ", "]")}
       |""".stripMargin
  }

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[SparkPlan]): PipelinedJoinExec =
    copy(probe = newChildren.head, builds = newChildren.tail)
}

object PipelinedJoinExec {

  /** Why the probe side of a full outer join is neither read by workers nor sent as columns. */
  private val Shuffled = "a full outer join shuffles the rows"

  /** What the log says after the reason for which a pipeline has not run. */
  private val WaysOut =
    "To run the pipeline raise spark.sparkext.buildSide.maxBytes, filter the build side, or put the hint on the other side"

  /** What stands for Spark's own joins in all plans that give the same. */
  private val Canonical = OneRowRelation()

  /** What a fused scan sends: one text a partition. */
  private val Splits = StructType(Seq(StructField("splits", StringType)))

  /** How columns are called on their way: by number, as names may be empty, repeated, or hold anything. */
  private[sparkext] def sent(types: Seq[DataType]): StructType = StructType(types.zipWithIndex.map { case (dataType, number) =>
    StructField(s"c$number", dataType)
  })

  private def sentColumns(columns: Seq[Attribute]): StructType = sent(columns.map(_.dataType))
}
