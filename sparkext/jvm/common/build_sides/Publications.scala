package org.apache.spark.sql.sparkext.build_sides

import java.util.concurrent.{CompletableFuture, CompletionException, ExecutionException}
import java.util.concurrent.atomic.{AtomicBoolean, AtomicReference}

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.sparkext.shim.SparkShim

/** The reason why an operator cannot run as a pipeline after all, and lower bounds of the bytes of its build sides, as
  * far as known.
  */
case class TooLarge(reason: String, sizes: Map[Int, Long])

/** Prepares the build sides of an operator, by join number, for its workers. They are prepared concurrently. If one
  * fails, all are cancelled.
  */
class Publications(session: SparkSession, preparations: Map[Int, BuildSidePreparation]) {

  /** The number of the join whose build side failed first, and its failure, which stopped the other build sides. */
  private val firstFailure = new AtomicReference[(Int, Throwable)]
  private val failed = new CompletableFuture[Option[PublishedBuildSide]]
  private val released = new AtomicBoolean

  private val published: Map[Int, CompletableFuture[Option[PublishedBuildSide]]] =
    preparations.map { case (number, preparation) =>
      number -> SparkShim.inThread(session, BuildSidePublisher.threads)(preparation.prepare()).whenComplete {
        (_, failure) =>
          if (failure != null && firstFailure.compareAndSet(null, number -> failure)) {
            preparations.values.foreach(_.cancel())
            failed.completeExceptionally(failure)
          }
      }
    }

  /** All build sides, once they are published. Left if one is too large: then all are released. */
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
      TooLarge(
        tooLarge.getMessage,
        others.flatMap { case (other, side) => side.get().map(other -> _.bytes) } + (number -> tooLarge.bytes))
    case other => throw other
  }

  /** Release the build sides that are published already, and the others as soon as they are published. */
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
