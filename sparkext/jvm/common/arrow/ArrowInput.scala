package org.apache.spark.sql.sparkext.arrow

import java.io.DataOutputStream

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamWriter

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.sparkext.python.PipelineWorkers

/** A Python runner that determines the content of its batches itself. Spark's own runner sends each of its input
  * iterators as one batch, and does not free the batch if the task ends before the iterator does.
  */
trait ArrowInput extends PipelineWorkers {
  private var isEnded = false

  // Registered here, because memory that is already allocated would stay allocated if no worker starts. Spark's own
  // listeners run before this one.
  TaskContext.get().addTaskCompletionListener[Unit](_ => if (!isEnded) abandon())

  /** Write the next batch to the stream; return whether there was one. */
  protected def writeBatch(
      root: VectorSchemaRoot,
      writer: ArrowStreamWriter,
      out: DataOutputStream,
      input: Iterator[Iterator[InternalRow]]): Boolean

  /** Release other resources, if the task ends early. */
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
