package org.apache.spark.sql.sparkext.shuffle

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, NoSuchFileException, Path}
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.util.Try

import org.apache.spark.{SparkException, TaskContext}
import org.apache.spark.sql.sparkext.build_sides.OwnFiles
import org.apache.spark.sql.sparkext.protocol.{Reason, TaskReports}
import org.apache.spark.util.ThreadUtils

/** Connects the worker of a task with the driver's load tables ([[LoadTables]]): sends the worker's messages to the
  * driver, and the load table to the worker. Worker and task exchange messages by files, see `OwnFiles.besideTask`.
  */
private class LoadTableLink(run: String, by: String, task: TaskContext) {
  private val tables = LoadTables.link

  /** Exchanges messages until the task ends. The driver confirms the last message before that, so the report of the run
    * includes it.
    */
  private def begin(): Unit = {
    report(LoadTableLink.Nothing)
    val turns =
      LoadTableLink.clock.scheduleWithFixedDelay(() => Try(step()), 0, LoadTableLink.PauseMillis, MILLISECONDS)
    task.addTaskCompletionListener[Unit] { _ =>
      turns.cancel(false)
      TaskReports.removeLater(path(""))
      Try(step())
    }
  }

  private def step(): Unit = synchronized {
    taken("loads").foreach(report)
    if (by == LoadTable.Routes) {
      val table = tables.askSync[String](taken("proposal").map(Proposed(run, _)).getOrElse(RequestedTable(run)))
      if (!task.isCompleted()) bring(table)
    }
  }

  private def report(loads: String): Unit = tables.askSync[Int](ReportedLoads(run, by, task.partitionId(), loads))

  private def bring(table: String): Unit = {
    Files.deleteIfExists(path("load_table.new"))
    Files.write(Files.createFile(path("load_table.new"), OwnFiles.File), table.getBytes(UTF_8))
    Files.move(path("load_table.new"), path("load_table"), ATOMIC_MOVE)
  }

  /** Moves the file first, because the worker may write another one at any time. */
  private def taken(name: String): Option[String] =
    try {
      Files.move(path(name), path(s"$name.taken"), ATOMIC_MOVE)
      val found = Files.readString(path(s"$name.taken"))
      Files.delete(path(s"$name.taken"))
      Some(found)
    } catch { case _: NoSuchFileException => None }

  private def path(name: String): Path = OwnFiles.besideTask(run, task, name)
}

private object LoadTableLink {
  private val PauseMillis = 100L
  private val PartitionsMillis = 30000L
  private lazy val clock = ThreadUtils.newDaemonSingleThreadScheduledExecutor("sparkext-load-tables")

  /** The message of a worker that has not done any work yet. */
  private val Nothing = """{"rows":{},"seconds":{}}"""

  /** Starts the exchange of messages for a task that routes rows. */
  def ofRoute(run: String, task: TaskContext): Unit = new LoadTableLink(run, LoadTable.Routes, task).begin()

  /** Starts the exchange of messages for a task that joins rows. */
  def ofPartition(run: String, task: TaskContext): Unit = new LoadTableLink(run, LoadTable.Partitions, task).begin()

  /** Waits, in a task that routes rows, until all partitions have started. Spark starts them together with this task,
    * unless only some partitions of the join are requested. Then the task would wait forever, so it fails after
    * `PartitionsMillis`.
    */
  def awaitPartitions(run: String, partitions: Int): Unit = {
    val tables = LoadTables.link
    val start = System.nanoTime
    def begun() = tables.askSync[Int](RequestedPartitions(run))
    while (begun() < partitions) {
      if (System.nanoTime - start > MILLISECONDS.toNanos(PartitionsMillis)) throw new SparkException(
        Reason("PARTITIONS_NOT_STARTED", begun(), partitions))
      Thread.sleep(PauseMillis / 10)
    }
  }
}
