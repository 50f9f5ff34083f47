package org.apache.spark.sql.sparkext

import java.util.UUID
import java.util.concurrent.{CompletableFuture, CompletionException, ExecutionException}
import java.util.concurrent.atomic.AtomicReference

import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.{InterruptibleIterator, TaskContext}
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, BoundReference, Expression, GenericInternalRow, JoinedRow, UnsafeProjection}
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, UnknownPartitioning}
import org.apache.spark.sql.execution.{ShuffledRowRDD, SparkPlan, SQLExecution, UnsafeRowSerializer}
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.metric.{SQLMetrics, SQLShuffleReadMetricsReporter, SQLShuffleWriteMetricsReporter}
import org.apache.spark.sql.types.{ByteType, DataType, IntegerType, StringType, StructField, StructType}
import org.apache.spark.sql.vectorized.ColumnarBatch

/** A chain of joins as one operator: `probe` streams through the indexes of all `builds` inside Python workers.
  *
  * Output column i is `output(i)`, and comes from `origins(i)`. Build sides run when the operator is prepared, side by
  * side, each as a job of its own.
  *
  * `parts`: set where the first join gives out unmatched build rows. The probe side is shuffled inside the operator then: a
  * shuffle below it would be a stage of its own to adaptive execution, which takes what it knows of the stage's rows for what
  * is known of the join's.
  *
  * It gives out rows: as columns, for code that Spark generates to read, measured no faster, with or without an aggregate above.
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
    inPlace: Boolean = false)
    extends SparkPlan {

  override def nodeName: String = "PipelinedJoin"
  override def children: Seq[SparkPlan] = probe +: builds
  override def producedAttributes: AttributeSet = outputSet -- inputSet

  /** Labels name columns as the query does: they would keep equal pipelines from being run once. */
  override protected def doCanonicalize(): SparkPlan = super.doCanonicalize() match {
    case operator: PipelinedJoinExec => operator.copy(joins = joins.map(_.copy(label = "")))
    case other => other
  }

  /** Rows stay in the partition of their probe row, but for those that have none. */
  override def outputPartitioning: Partitioning = probe.outputPartitioning match {
    case _ if parts.isDefined => UnknownPartitioning(parts.get.count)
    case partitioning: Expression if partitioning.references.subsetOf(outputSet) => partitioning
    case partitioning => UnknownPartitioning(partitioning.numPartitions)
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

  /** Those build sides that run in the JVM, by their number. */
  @transient private lazy val publishers: Map[Int, BuildSidePublisher] =
    buildScans.zipWithIndex.collect { case (Left(_), number) =>
      number -> new BuildSidePublisher(
        sparkContext,
        builds(number),
        buildColumns(number).toOption,
        PipelinedJoinExec.sentColumns(builds(number).output),
        joins(number).label,
        joins(number).maxBuildBytes,
        conf.sessionLocalTimeZone,
        ordered = joins(number).asOf.isDefined)
    }.toMap

  @transient private lazy val published: Map[Int, CompletableFuture[PublishedBuildSide]] =
    publishers.map { case (number, publisher) =>
      number -> SparkShim.inThread(session, BuildSidePublisher.threads)(publisher.publish()).whenComplete { (_, failure) =>
        if (failure != null && firstFailure.compareAndSet(null, failure)) publishers.values.foreach(_.cancel())
      }
    }

  /** What made the other build sides stop as well. */
  @transient private lazy val firstFailure = new AtomicReference[Throwable]

  override protected def doPrepare(): Unit = published

  override protected def doExecute(): RDD[InternalRow] = {
    val columns = output
    val copied = !inPlace
    batches().mapPartitionsInternal { batches =>
      val copy = UnsafeProjection.create(columns, columns)
      val rows = new RowsOfBatches(batches, copy)
      if (copied) rows.map(copy) else rows
    }
  }

  private def batches(): RDD[ColumnarBatch] = {
    val sides = published.map { case (number, side) => number -> awaited(side) }
    report(sides.values)
    val python = WorkerPython.of(settings) match {
      case Right(python) => python
      case Left(problem) => throw new IllegalStateException(s"no Python to run the pipelined join: $problem")
    }
    // PySpark makes an object of each row that has no column, which takes longer than any join.
    val result = if (output.isEmpty) PipelinedJoinExec.sent(Seq(ByteType)) else PipelinedJoinExec.sentColumns(output)
    val reports = new TaskReports(
      UUID.randomUUID().toString,
      buildScans.indices.filter(buildScans(_).isRight).toSet,
      metrics,
      PipelineRuns.begin(this, sparkContext))
    val command = WorkOrder.command(
      WorkOrder.spec(joins, origins, probe.output.length, parts.map(_.owner)),
      settings.forWorkers,
      result,
      probeScan.toOption,
      buildScans.zipWithIndex.map {
        case (Right(scan), number) => WorkOrder.read(scan, joins(number).maxBuildBytes)
        case (_, number) => WorkOrder.broadcast(sides(number), PipelinedJoinExec.sentColumns(builds(number).output))
      },
      reports.run,
      tasksSharing)
    val function = ChainedPythonFunctions(
      Seq(SparkShim.pythonFunction(command, python, sides.values.map(_.broadcast).toSeq, sparkContext)))
    // The rows of a batch are sent as one struct column, and come back as one.
    val sent = StructType(
      Seq(StructField("row", probeScan.fold(_ => PipelinedJoinExec.sent(parts.map(_ => IntegerType).toSeq ++ probe.output.map(_.dataType)), _ => PipelinedJoinExec.Splits))))
    val timeZone = conf.sessionLocalTimeZone
    val runnerConf = SparkShim.pythonRunnerConf(conf)
    val runnerMetrics = PipelineMetrics.forRunner(metrics)
    val artifacts = SparkShim.artifacts
    probeColumns match {
      case Right(input) =>
        input.execute().mapPartitionsWithIndexInternal { (partition, parts) =>
          val task = TaskContext.get()
          reports.collectFrom(task)
          val converted = parts.next()
          val runner = new PythonRunner(function, sent, timeZone, runnerConf, runnerMetrics, artifacts) with ColumnarArrowInput {
            override protected def columns: ColumnsToArrow = converted
          }
          new PythonBatches(runner.compute(Iterator.empty, partition, task), result)
        }
      case Left(_) =>
        input().mapPartitionsWithIndexInternal { (partition, rows) =>
          val task = TaskContext.get()
          reports.collectFrom(task)
          val wrapped = new InterruptibleIterator(task, rows).map(InternalRow(_))
          val runner = new PythonRunner(function, sent, timeZone, runnerConf, runnerMetrics, artifacts) with RowArrowInput
          new PythonBatches(runner.compute(Iterator.single(wrapped), partition, task), result)
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

  private def awaited(side: CompletableFuture[PublishedBuildSide]): PublishedBuildSide =
    try side.get()
    catch {
      case _: ExecutionException =>
        firstFailure.get match {
          case wrapped: CompletionException => throw wrapped.getCause
          case failure => throw failure
        }
      case interrupted: InterruptedException =>
        publishers.values.foreach(_.cancel())
        throw interrupted
    }

  private def report(sides: Iterable[PublishedBuildSide]): Unit = {
    metrics("buildRows").set(sides.map(_.rows).sum)
    metrics("buildBytes").set(sides.map(_.bytes).sum)
    val execution = sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)
    SQLMetrics.postDriverMetricUpdates(sparkContext, execution, Seq(metrics("buildRows"), metrics("buildBytes")))
  }

  private def described(number: Int): String = {
    val join = joins(number)
    s"${join.kind}, ${join.label}, algorithm ${join.algorithm}, build side: child ${number + 2}, scan: ${scanned(buildScans(number), buildColumns(number))}"
  }

  private def scanned(scan: Either[String, FusedScan], columns: Either[String, ColumnarInput]): String =
    scan.fold(reason => s"${if (columns.isRight) "columns" else "rows"} from Spark ($reason)", _.described)

  override def simpleString(maxFields: Int): String = described(nodeName)(inBrief)

  /** Plans are shown where a query only runs, too: that must not keep it from running. */
  private def described(name: String)(text: => String): String =
    Guarded("description")(text).fold(reason => s"$name ($reason)", identity)

  private def inBrief: String = {
    val stages = joins.zip(buildScans).map { case (join, scan) =>
      s"${join.kind}: ${join.label}${if (scan.isRight) " (fused)" else ""}"
    }
    s"$nodeName ${stages.mkString("[", "; ", "]")} scan=${scanned(probeScan, probeColumns)}${if (inPlace) " rows=in place" else ""}"
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
       |Output [${output.length}]: ${output.mkString("[", ", ", "]")}
       |""".stripMargin
  }

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[SparkPlan]): PipelinedJoinExec =
    copy(probe = newChildren.head, builds = newChildren.tail)
}

object PipelinedJoinExec {

  /** Why the probe side of a full outer join is neither read by workers nor sent as columns. */
  private val Shuffled = "a full outer join shuffles the rows"

  /** What a fused scan sends: one text a partition. */
  private val Splits = StructType(Seq(StructField("splits", StringType)))

  /** How columns are called on their way: by number, as names may be empty, repeated, or hold anything. */
  private[sparkext] def sent(types: Seq[DataType]): StructType = StructType(types.zipWithIndex.map { case (dataType, number) =>
    StructField(s"c$number", dataType)
  })

  private def sentColumns(columns: Seq[Attribute]): StructType = sent(columns.map(_.dataType))
}
