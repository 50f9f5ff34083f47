package org.apache.spark.sql.sparkext.protocol

import java.nio.file.{Files, NoSuchFileException, Path}
import java.util.concurrent.TimeUnit.SECONDS

import scala.util.{Try, Using}

import com.google.common.cache.CacheBuilder
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.sparkext.build_sides.OwnFiles
import org.apache.spark.util.{CollectionAccumulator, ThreadUtils}

/** Adds the reports of workers about their tasks to the operator's metrics and to `sparkext.report`.
  *
  * A worker writes its report to a file in the executor's local folder. The task reads the file when it completes. A
  * task that is stopped early may end before its report is written. Then the report is not counted, and a file that is
  * written later is removed, even if the worker is killed meanwhile. `run` names this run of the operator, `scanned`
  * the joins whose build sides workers read.
  */
class TaskReports(
    val run: String,
    scanned: Set[Int],
    metrics: Map[String, SQLMetric],
    log: CollectionAccumulator[String],
    worked: CollectionAccumulator[(Int, Double)])
    extends Serializable {
  import Shared.formats

  def collectFrom(task: TaskContext): Unit = {
    val path = OwnFiles.besideTask(run, task, "report")
    task.addTaskCompletionListener[Unit] { _ =>
      try {
        val report = Files.readString(path)
        Files.delete(path)
        record(report, task)
      } catch {
        case _: NoSuchFileException => TaskReports.removeLater(path)
      }
    }
  }

  private def record(text: String, task: TaskContext): Unit = {
    val report = parse(text).extract[TaskReport]
    metrics("probeRows") += report.rows_in
    metrics("morsels") += report.morsels
    val inKernels = nanoseconds(report.seconds.sum)
    metrics("kernelTime") += inKernels
    metrics("transferTime") += math.max(0L, nanoseconds(report.elapsed_seconds) - inKernels)
    val medians = report.operators.flatMap(_.budget_median).sorted
    medians.lift(medians.length / 2).foreach(metrics("medianBudget").set(_))
    report.operators.flatMap(_.budget_min).minOption.foreach(metrics("smallestBudget").set(_))
    report.operators.flatMap(_.budget_max).maxOption.foreach(metrics("largestBudget").set(_))
    report.operators.flatMap(_.headroom_min).minOption.foreach(metrics("lowestHeadroom").set(_))
    report.indexes.zipWithIndex.foreach { case (index, join) =>
      // Tasks of a node share the index of a replicated build side: the first task that reports the index counts it.
      // Each partition of a partitioned build side has an index of its own.
      if (index.is_partition || TaskReports.isFirst(run, join)) {
        metrics("indexTime") += nanoseconds(index.seconds)
        metrics("indexBytes") += index.bytes
        if (index.reused) metrics("reusedIndexes") += 1
        if (scanned(join)) {
          metrics("buildRows") += index.build_rows
          metrics("buildBytes") += index.build_bytes
        }
      }
    }
    report.scan.foreach { scan =>
      metrics("fileBytes") += scan.bytes
      metrics("rowGroups") += scan.row_groups
      metrics("prunedRowGroups") += scan.row_groups_pruned
      task.taskMetrics().inputMetrics.incBytesRead(scan.bytes)
      task.taskMetrics().inputMetrics.incRecordsRead(scan.rows)
    }
    worked.add(task.partitionId() -> (report.elapsed_seconds + report.indexes.filterNot(_.reused).map(_.seconds).sum))
    log.add(text)
  }

  private def nanoseconds(seconds: Double): Long = (seconds * 1e9).toLong
}

private[sparkext] object TaskReports {
  private val Remembered = 10000L

  /** The indexes that have been counted, by run and join number, as long as tasks may still report them. */
  private val counted =
    CacheBuilder.newBuilder().maximumSize(Remembered).build[(String, Int), java.lang.Boolean]().asMap

  /** Whether an index is reported for the first time. */
  def isFirst(run: String, join: Int): Boolean = counted.putIfAbsent(run -> join, true) == null

  /** Longer than a worker may live after its task was stopped early. */
  private val LateSeconds = 10L
  private lazy val remover = ThreadUtils.newDaemonSingleThreadScheduledExecutor("sparkext-late-reports")

  def removeLater(report: Path): Unit =
    remover.schedule((() => Try(remove(report))): Runnable, LateSeconds, SECONDS)

  /** Also removes the file in which the report is being written. */
  private def remove(report: Path): Unit =
    Using.resource(Files.newDirectoryStream(report.getParent, s"${report.getFileName}*"))(_.forEach(
      Files.deleteIfExists(_)))
}

// The fields of Python's `TaskMetrics` that are shown, with their names in Python.
private case class TaskReport(
    operators: List[OperatorReport],
    seconds: List[Double],
    indexes: List[IndexReport],
    rows_in: Long,
    morsels: Long,
    elapsed_seconds: Double,
    scan: Option[ScanReport])
private case class OperatorReport(
    budget_min: Option[Long],
    budget_median: Option[Long],
    budget_max: Option[Long],
    headroom_min: Option[Long])
private case class IndexReport(
    bytes: Long,
    seconds: Double,
    build_rows: Long,
    build_bytes: Long,
    reused: Boolean,
    is_partition: Boolean)
private case class ScanReport(bytes: Long, rows: Long, row_groups: Long, row_groups_pruned: Long)
