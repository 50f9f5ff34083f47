package org.apache.spark.sql.sparkext.build_sides

import java.util.UUID

import org.apache.spark.{SparkContext, SparkException}
import org.apache.spark.sql.sparkext.protocol.Reason

/** The work for a build side, or a source, that precedes all tasks of the pipeline, in jobs that can be cancelled.
  * `described` names it in Spark's UI and in errors.
  */
abstract class BuildSidePreparation(context: SparkContext, described: String) {
  private val tag = s"sparkext-build-${UUID.randomUUID()}"
  @volatile private var cancelled = false

  /** Returns the build side that tasks receive, if any. Raises a [[BuildSideTooLargeException]] if the build side does
    * not fit.
    */
  def prepare(): Option[PublishedBuildSide]

  /** Releases the resources that `prepare` has created, except for its result. Called if the pipeline does not run. */
  def release(): Unit = ()

  /** Called when the build side is no longer needed. */
  def cancel(): Unit = {
    cancelled = true
    context.cancelJobsWithTag(tag)
  }

  /** Runs code that starts jobs. They are cancelled if the preparation is cancelled or if `body` fails. */
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

  /** To be called right before a job starts: until then `cancel` finds no job to cancel. */
  protected def failIfCancelled(): Unit =
    if (cancelled) throw new SparkException(Reason("BUILD_SIDE_CANCELLED", described))
}

/** A build side takes at least `bytes` bytes, which is too much. Spark's own joins then run in place of the pipeline.
  */
class BuildSideTooLargeException(message: String, val bytes: Long) extends SparkException(message)
