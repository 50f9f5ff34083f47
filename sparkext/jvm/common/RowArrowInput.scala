package org.apache.spark.sql.sparkext

import java.io.DataOutputStream

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamWriter

import org.apache.spark.sql.catalyst.InternalRow

/** A Python runner whose worker gets the rows of one iterator in batches of limited rows and bytes. */
trait RowArrowInput extends ArrowInput {
  import RowArrowInput._

  private var rows: Iterator[InternalRow] = _
  private var most = ArrowInput.FirstRows

  override protected def writeBatch(
      root: VectorSchemaRoot,
      writer: ArrowStreamWriter,
      out: DataOutputStream,
      input: Iterator[Iterator[InternalRow]]): Boolean = {
    if (rows == null) rows = input.next()
    rows.hasNext && {
      fill()
      arrowWriter.finish()
      writer.writeBatch()
      arrowWriter.reset()
      most = math.min(most * ArrowInput.Growth, MostRows)
      true
    }
  }

  /** Asking for the size takes longer than writing a row: that is done when an eighth of the room may have been filled. */
  private def fill(): Unit = {
    var count = 0
    var lookAt = 1
    var full = false
    while (!full && count < most && rows.hasNext) {
      arrowWriter.write(rows.next())
      count += 1
      if (count == lookAt) {
        val size: Long = arrowWriter.sizeInBytes()
        full = size >= MostBytes
        val rowBytes = math.max(1L, size / count)
        lookAt += math.max(1L, math.min(MostUnseen, (MostBytes - size) / 8 / rowBytes)).toInt
      }
    }
  }
}

object RowArrowInput {

  /** As many as a morsel has by default: batches of fewer would be put together by copying them. */
  private val MostRows = 131072
  private val MostBytes = 16L << 20
  private val MostUnseen = 1024L
}
