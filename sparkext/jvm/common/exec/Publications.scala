package org.apache.spark.sql.sparkext

import java.util.concurrent.{CompletableFuture, CompletionException, ExecutionException}
import java.util.concurrent.atomic.{AtomicBoolean, AtomicReference}

import org.apache.spark.sql.SparkSession

/** Why an operator cannot run as a pipeline after all, and the bytes that its build sides take at least, where that is known. */
case class TooLarge(reason: String, sizes: Map[Int, Long])

/** The build sides of an operator, by the numbers of their joins, on their way to where workers find them: side by side, and all
  * or none.
  */
class Publications(session: SparkSession, preparations: Map[Int, BuildSidePreparation]) {

  /** What made the other build sides stop as well, and of which join it was. */
  private val firstFailure = new AtomicReference[(Int, Throwable)]
  private val failed = new CompletableFuture[Option[PublishedBuildSide]]
  private val released = new AtomicBoolean

  private val published: Map[Int, CompletableFuture[Option[PublishedBuildSide]]] = preparations.map { case (number, preparation) =>
    number -> SparkShim.inThread(session, BuildSidePublisher.threads)(preparation.prepare()).whenComplete { (_, failure) =>
      if (failure != null && firstFailure.compareAndSet(null, number -> failure)) {
        preparations.values.foreach(_.cancel())
        failed.completeExceptionally(failure)
      }
    }
  }

  /** All build sides; or that one is too large, and then none is kept. */
  def awaited(): Either[TooLarge, Map[Int, PublishedBuildSide]] =
    try {
      CompletableFuture.anyOf(CompletableFuture.allOf(published.values.toSeq: _*), failed).get()
      Right(published.flatMap { case (number, side) => side.get().map(number -> _) })
    } catch {
      case _: ExecutionException =>
        val (number, failure) = firstFailure.get
        failure match {
          case wrapped: CompletionException => Left(unlessFailed(number, wrapped.getCause))
          case other => Left(unlessFailed(number, other))
        }
      case interrupted: InterruptedException =>
        preparations.values.foreach(_.cancel())
        throw interrupted
    }

  private def unlessFailed(number: Int, failure: Throwable): TooLarge = failure match {
    case tooLarge: BuildSideTooLargeException =>
      release()
      val others = published.filter { case (_, side) => side.isDone && !side.isCompletedExceptionally }
      TooLarge(tooLarge.getMessage, others.flatMap { case (other, side) => side.get().map(other -> _.bytes) } + (number -> tooLarge.bytes))
    case other => throw other
  }

  /** Let go of what is there, and of what comes all the same. */
  private def release(): Unit =
    if (released.compareAndSet(false, true)) {
      published.foreach { case (number, side) =>
        side.whenComplete { (found, _) =>
          Option(found).flatten.foreach(_.release())
          preparations(number).release()
        }
      }
    }
}
