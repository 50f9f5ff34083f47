package org.apache.spark.sql.sparkext

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, NoSuchFileException, Path}
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.util.Try

import org.apache.spark.{SparkException, TaskContext}
import org.apache.spark.util.ThreadUtils

/** Connects the worker of a task with the driver's load tables (`Boards`): sends the worker's messages to the driver,
  * and the load table to the worker. Worker and task exchange messages by files, see `OwnFiles.besideTask`.
  */
private class BoardLink(run: String, by: String, task: TaskContext) {
  private val boards = Boards.link

  /** Exchanges messages until the task ends. The driver confirms the last message before that, so the report of the run
    * includes it.
    */
  private def begin(): Unit = {
    tell(BoardLink.Nothing)
    val turns = BoardLink.clock.scheduleWithFixedDelay(() => Try(step()), 0, BoardLink.PauseMillis, MILLISECONDS)
    task.addTaskCompletionListener[Unit] { _ =>
      turns.cancel(false)
      TaskReports.removeLater(path(""))
      Try(step())
    }
  }

  private def step(): Unit = synchronized {
    taken("told").foreach(tell)
    if (by == Board.Routes) {
      val board = boards.askSync[String](taken("proposal").map(Proposed(run, _)).getOrElse(AskedBoard(run)))
      if (!task.isCompleted()) bring(board)
    }
  }

  private def tell(what: String): Unit = boards.askSync[Int](Told(run, by, task.partitionId(), what))

  private def bring(board: String): Unit = {
    Files.deleteIfExists(path("board.new"))
    Files.write(Files.createFile(path("board.new"), OwnFiles.File), board.getBytes(UTF_8))
    Files.move(path("board.new"), path("board"), ATOMIC_MOVE)
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

private object BoardLink {
  private val PauseMillis = 100L
  private val SlotsMillis = 30000L
  private lazy val clock = ThreadUtils.newDaemonSingleThreadScheduledExecutor("sparkext-boards")

  /** The message of a worker that has not done any work yet. */
  private val Nothing = """{"rows":{},"seconds":{}}"""

  /** Starts the exchange of messages for a task that routes rows. */
  def ofRoute(run: String, task: TaskContext): Unit = new BoardLink(run, Board.Routes, task).begin()

  /** Starts the exchange of messages for a task that joins rows. */
  def ofSlot(run: String, task: TaskContext): Unit = new BoardLink(run, Board.Slots, task).begin()

  /** Waits, in a task that routes rows, until all partitions have started. Spark starts them together with this task,
    * unless only some partitions of the join are requested. Then the task would wait forever, so it fails after
    * `SlotsMillis`.
    */
  def awaitSlots(run: String, slots: Int): Unit = {
    val boards = Boards.link
    val start = System.nanoTime
    def begun() = boards.askSync[Int](AskedSlots(run))
    while (begun() < slots) {
      if (System.nanoTime - start > MILLISECONDS.toNanos(SlotsMillis)) throw new SparkException(
        s"${begun()} of $slots slots of a join run, which all have to: something asks for some of its partitions only. " +
          "Set spark.sparkext.partitioned.stages to waves for it")
      Thread.sleep(PauseMillis / 10)
    }
  }
}
