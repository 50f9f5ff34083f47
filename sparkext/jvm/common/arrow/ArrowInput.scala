package org.apache.spark.sql.sparkext

import java.io.DataOutputStream

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamWriter

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow

/** A Python runner that says itself what goes into a batch. Spark's own sends all that one of its input iterators has as one,
  * and keeps it in memory should the task end before its input does.
  */
trait ArrowInput extends PipelineWorkers {
  private var isEnded = false

  // Here, as what is allocated already would stay where no worker starts. Spark's own listeners come before it.
  TaskContext.get().addTaskCompletionListener[Unit](_ => if (!isEnded) abandon())

  /** Write the next batch to the stream; return whether there was one. */
  protected def writeBatch(
      root: VectorSchemaRoot,
      writer: ArrowStreamWriter,
      out: DataOutputStream,
      input: Iterator[Iterator[InternalRow]]): Boolean

  /** Let go of what else is held, where the task ends early. */
  protected def release(): Unit = ()

  override def writeNextBatchToArrowStream(
      root: VectorSchemaRoot,
      writer: ArrowStreamWriter,
      out: DataOutputStream,
      input: Iterator[Iterator[InternalRow]]): Boolean = {
    val before = out.size()
    if (writeBatch(root, writer, out, input)) {
      pythonMetrics("pythonDataSent") += out.size() - before
      true
    } else {
      isEnded = true
      close()
      false
    }
  }

  private def abandon(): Unit = {
    try release()
    finally
      try root.close()
      finally allocator.close()
  }
}
