package org.apache.spark.sql.sparkext

import java.util.concurrent.{CompletableFuture, CompletionException, ExecutionException}
import java.util.concurrent.atomic.AtomicReference

import org.apache.spark.TaskContext
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, Expression}
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, UnknownPartitioning}
import org.apache.spark.sql.execution.{SparkPlan, SQLExecution}
import org.apache.spark.sql.execution.metric.SQLMetrics
import org.apache.spark.sql.types.{StructField, StructType}

/** A chain of joins as one operator: `probe` streams through the indexes of all `builds` inside Python workers.
  *
  * Output column i is `output(i)`, and comes from `origins(i)`. Build sides run when the operator is prepared, side by
  * side, each as a job of its own.
  */
case class PipelinedJoinExec(
    probe: SparkPlan,
    builds: Seq[SparkPlan],
    joins: Seq[PlannedJoin],
    output: Seq[Attribute],
    origins: Seq[ColumnRef])
    extends SparkPlan {

  override def nodeName: String = "PipelinedJoin"
  override def children: Seq[SparkPlan] = probe +: builds
  override def producedAttributes: AttributeSet = outputSet -- inputSet

  /** Labels name columns as the query does: they would keep equal pipelines from being run once. */
  override protected def doCanonicalize(): SparkPlan = super.doCanonicalize() match {
    case operator: PipelinedJoinExec => operator.copy(joins = joins.map(_.copy(label = "")))
    case other => other
  }

  /** Rows stay in the partition of their probe row. */
  override def outputPartitioning: Partitioning = probe.outputPartitioning match {
    case partitioning: Expression if partitioning.references.subsetOf(outputSet) => partitioning
    case partitioning => UnknownPartitioning(partitioning.numPartitions)
  }

  override lazy val metrics = PipelineMetrics.create(sparkContext)

  @transient private lazy val settings = new Settings(conf)

  @transient private lazy val publishers: Seq[BuildSidePublisher] =
    builds.zip(joins).map { case (build, join) =>
      new BuildSidePublisher(
        sparkContext,
        build,
        PipelinedJoinExec.sent(build.output),
        join.label,
        join.maxBuildBytes,
        conf.sessionLocalTimeZone)
    }

  @transient private lazy val published: Seq[CompletableFuture[PublishedBuildSide]] =
    publishers.map { publisher =>
      SparkShim.inThread(session, BuildSidePublisher.threads)(publisher.publish()).whenComplete { (_, failure) =>
        if (failure != null && firstFailure.compareAndSet(null, failure)) publishers.foreach(_.cancel())
      }
    }

  /** What made the other build sides stop as well. */
  @transient private lazy val firstFailure = new AtomicReference[Throwable]

  override protected def doPrepare(): Unit = published

  override protected def doExecute(): RDD[InternalRow] = {
    val sides = published.map(awaited)
    report(sides)
    val python = WorkerPython.of(settings) match {
      case Right(python) => python
      case Left(problem) => throw new IllegalStateException(s"no Python to run the pipelined join: $problem")
    }
    val broadcasts = sides.map(_.broadcast)
    val result = PipelinedJoinExec.sent(output)
    val command = WorkOrder.command(
      WorkOrder.spec(joins, origins, probe.output.length),
      settings.forWorkers,
      result,
      broadcasts.map(_.id).zip(builds.map(build => PipelinedJoinExec.sent(build.output))),
      tasksSharing)
    val evaluators = SparkShim.evaluatorFactory(
      output,
      ChainedPythonFunctions(Seq(SparkShim.pythonFunction(command, python, broadcasts, sparkContext))),
      PipelinedJoinExec.sent(probe.output),
      result,
      conf,
      PipelineMetrics.forRunner(metrics))
    val reports = new TaskReports(broadcasts.head, metrics, PipelineRuns.begin(this, sparkContext))
    probe.execute().mapPartitionsWithIndexInternal { (partition, rows) =>
      reports.collectFrom(TaskContext.get())
      evaluators.createEvaluator().eval(partition, rows)
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
        publishers.foreach(_.cancel())
        throw interrupted
    }

  private def report(sides: Seq[PublishedBuildSide]): Unit = {
    metrics("buildRows").set(sides.map(_.rows).sum)
    metrics("buildBytes").set(sides.map(_.bytes).sum)
    val execution = sparkContext.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)
    SQLMetrics.postDriverMetricUpdates(sparkContext, execution, Seq(metrics("buildRows"), metrics("buildBytes")))
  }

  private def described(number: Int): String = {
    val join = joins(number)
    s"${join.kind}, ${join.label}, algorithm ${join.algorithm}, build side: child ${number + 2}"
  }

  override def simpleString(maxFields: Int): String =
    s"$nodeName [${joins.map(join => s"${join.kind}: ${join.label}").mkString("; ")}]" +
      " scan=rows from Spark"

  override def verboseStringWithOperatorId(): String = {
    val lines = joins.indices.map(number => s"Join ${number + 1}: ${described(number)}")
    s"""
       |$formattedNodeName
       |${lines.mkString("\n")}
       |Scan: rows from Spark, ${probe.output.length} columns cross into Python
       |Output [${output.length}]: ${output.mkString("[", ", ", "]")}
       |""".stripMargin
  }

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[SparkPlan]): PipelinedJoinExec =
    copy(probe = newChildren.head, builds = newChildren.tail)
}

object PipelinedJoinExec {

  /** How columns are called on their way: by number, as names may be empty, repeated, or hold anything. */
  private def sent(columns: Seq[Attribute]): StructType = StructType(columns.zipWithIndex.map { case (column, number) =>
    StructField(s"c$number", column.dataType)
  })
}
