package org.apache.spark.sql.sparkext.arrow

import java.io.DataOutputStream
import java.nio.channels.Channels

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.{VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.complex.StructVector
import org.apache.arrow.vector.ipc.{ArrowStreamWriter, WriteChannel}
import org.apache.arrow.vector.ipc.message.MessageSerializer

import org.apache.spark.sql.catalyst.InternalRow

/** A Python runner that sends columns to its worker, as one struct like the rows of other runners. Its input iterator
  * is not used.
  */
trait ColumnarArrowInput extends ArrowInput {
  protected def columns: ColumnsToArrow

  override protected def writeBatch(
      root: VectorSchemaRoot,
      writer: ArrowStreamWriter,
      out: DataOutputStream,
      unused: Iterator[Iterator[InternalRow]]): Boolean = {
    val row = root.getVector(0).asInstanceOf[StructVector]
    val rows = columns.fill(row.getChildrenFromFields.asScala.toSeq)
    rows > 0 && {
      root.setRowCount(rows)
      ColumnCopy.setBits(row.getValidityBuffer.memoryAddress, 0, rows)
      val batch = new VectorUnloader(root).getRecordBatch // uncompressed, whatever the session's setting is
      try MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), batch)
      finally batch.close()
      true
    }
  }

  override protected def release(): Unit = columns.close()
}
