package org.apache.spark.sql.sparkext

import java.util.UUID

import org.apache.spark.{SparkContext, SparkException}

/** What has to be done for a build side, or a source, before any task of the pipeline begins, in jobs that can be cancelled.
  * `described` names it.
  */
abstract class BuildSidePreparation(context: SparkContext, described: String) {
  private val tag = s"sparkext-build-${UUID.randomUUID()}"
  @volatile private var cancelled = false

  /** What tasks have to be told of, if anything. Raises a [[BuildSideTooLargeException]] where the build side does not fit. */
  def prepare(): Option[PublishedBuildSide]

  /** Let go of what is left of `prepare` beside what it has returned: nothing runs with it. */
  def release(): Unit = ()

  /** Called where nobody needs the build side any more. */
  def cancel(): Unit = {
    cancelled = true
    context.cancelJobsWithTag(tag)
  }

  /** Runs what starts jobs: they are cancelled with the preparation, and with whatever fails here. */
  protected def asJob[T](body: => T): T = {
    context.addJobTag(tag)
    context.setJobDescription(described)
    try body
    catch {
      case failure: Throwable =>
        context.cancelJobsWithTag(tag)
        throw failure
    } finally context.removeJobTag(tag)
  }

  /** To be asked right before a job starts: none runs yet that could have been cancelled. */
  protected def failIfCancelled(): Unit =
    if (cancelled) throw new SparkException(s"the $described was cancelled")
}

/** A build side that takes `bytes` and more, which is too much. Spark's own joins run in place of the pipeline then. */
class BuildSideTooLargeException(message: String, val bytes: Long) extends SparkException(message)
