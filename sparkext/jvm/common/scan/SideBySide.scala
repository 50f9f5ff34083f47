package org.apache.spark.sql.sparkext

import java.util.concurrent.{Callable, ExecutionException, Executors, Future, ThreadFactory}

/** Reads many small things that planning asks of files, several at a time: most of the time that takes is spent waiting. */
private object SideBySide {
  private val Readers = 16

  private val readers = Executors.newFixedThreadPool(
    Readers,
    new ThreadFactory {
      override def newThread(task: Runnable): Thread = {
        val thread = new Thread(task, "sparkext-files")
        thread.setDaemon(true)
        thread
      }
    })

  /** What `read` gives for each; the first problem is thrown as it is. */
  def apply[A, B](items: Seq[A])(read: A => B): Seq[B] = items.map(item => begun(read(item))).map(awaited)

  def begun[T](read: => T): Future[T] = readers.submit(new Callable[T] {
    override def call(): T = read
  })

  def awaited[T](task: Future[T]): T =
    try task.get()
    catch { case failed: ExecutionException => throw failed.getCause }
}
