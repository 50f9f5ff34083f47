package org.apache.spark.sql.sparkext.scan

import java.util.concurrent.{Callable, ExecutionException, Future}

import org.apache.spark.util.ThreadUtils

/** Reads many small parts of files for planning, several at a time: most of the time is spent waiting. */
private object SideBySide {
  private val Readers = 16

  private val readers = ThreadUtils.newDaemonFixedThreadPool(Readers, "sparkext-files")

  /** The result of `read` for each item. The first exception is thrown as it is. */
  def apply[A, B](items: Seq[A])(read: A => B): Seq[B] = items.map(item => begun(read(item))).map(awaited)

  def begun[T](read: => T): Future[T] = readers.submit((() => read): Callable[T])

  def awaited[T](task: Future[T]): T =
    try task.get()
    catch { case failed: ExecutionException => throw failed.getCause }
}
