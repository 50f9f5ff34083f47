package org.apache.spark.sql.sparkext

import java.io.DataOutputStream
import java.nio.channels.Channels

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.complex.StructVector
import org.apache.arrow.vector.ipc.{ArrowStreamWriter, WriteChannel}
import org.apache.arrow.vector.ipc.message.MessageSerializer

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.python.ArrowPythonRunner

/** A Python runner whose worker gets columns, as one struct like the rows of others. Its input iterator is not asked. */
trait ColumnarArrowInput extends ArrowPythonRunner {
  protected def columns: ColumnsToArrow

  private var isBegun = false
  private var isEnded = false

  override def writeNextBatchToArrowStream(
      root: VectorSchemaRoot,
      writer: ArrowStreamWriter,
      out: DataOutputStream,
      unused: Iterator[Iterator[InternalRow]]): Boolean = {
    if (!isBegun) {
      isBegun = true
      TaskContext.get().addTaskCompletionListener[Unit](_ => if (!isEnded) abandon())
    }
    val row = root.getVector(0).asInstanceOf[StructVector]
    val rows = columns.fill(row.getChildrenFromFields.asScala.toSeq)
    if (rows > 0) {
      root.setRowCount(rows)
      ColumnCopy.setBits(row.getValidityBuffer.memoryAddress, 0, rows)
      val before = out.size()
      val batch = unloader.getRecordBatch
      try MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), batch)
      finally batch.close()
      pythonMetrics("pythonDataSent") += out.size() - before
      true
    } else {
      isEnded = true
      close()
      false
    }
  }

  /** A task may end before its input does. */
  private def abandon(): Unit = {
    columns.close()
    root.close()
    allocator.close()
  }
}
