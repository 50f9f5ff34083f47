package org.apache.spark.sql.sparkext

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, NoSuchFileException, Path}
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.util.Try

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.util.ThreadUtils

/** Carries what the worker of a task has to tell to the driver's [[Boards]], and the board to the worker: files beside the task. */
private class BoardLink(run: String, task: TaskContext, step: BoardLink => Unit) {
  private val boards = Boards.link
  private val prefix = {
    val folder = SparkEnv.get.blockManager.diskBlockManager.localDirs.head.toPath.resolve("sparkext")
    Files.createDirectories(folder, OwnFiles.Folder)
    folder.resolve(s"$run.${task.taskAttemptId()}")
  }
  private val turns = BoardLink.clock.scheduleWithFixedDelay(() => Try(step(this)), 0, BoardLink.PauseMillis, MILLISECONDS)

  task.addTaskCompletionListener[Unit] { _ =>
    turns.cancel(false)
    Try(step(this))
    TaskReports.removeLater(prefix)
  }

  private def path(name: String): Path = prefix.resolveSibling(s"${prefix.getFileName}.$name")

  private def taken(name: String): Option[String] =
    try {
      val found = Files.readString(path(name))
      Files.delete(path(name))
      Some(found)
    } catch { case _: NoSuchFileException => None }

  /** The answer has come before a task ends: then its loads are in the report. */
  private def asked(told: Any): String = boards.askSync[String](told)

  private def tell(by: String): Unit = taken("told").foreach(what => asked(Told(run, by, task.partitionId(), what)))

  private def bring(board: String): Unit = {
    val fresh = Files.createFile(path("board.new"), OwnFiles.File)
    Files.write(fresh, board.getBytes(UTF_8))
    Files.move(fresh, path("board"), ATOMIC_MOVE)
  }
}

private object BoardLink {
  private val PauseMillis = 100L
  private lazy val clock = ThreadUtils.newDaemonSingleThreadScheduledExecutor("sparkext-boards")

  /** Of a task that routes rows. */
  def ofRoute(run: String, task: TaskContext): Unit = new BoardLink(
    run,
    task,
    link => {
      link.tell(Board.Routes)
      val board = link.asked(link.taken("proposal").map(Proposed(run, _)).getOrElse(AskedBoard(run)))
      if (!task.isCompleted()) link.bring(board)
    })

  /** Of a task that joins them. */
  def ofSlot(run: String, task: TaskContext): Unit =
    new BoardLink(run, task, _.tell(Board.Slots))
}
