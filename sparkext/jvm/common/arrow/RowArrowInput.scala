package org.apache.spark.sql.sparkext

import java.io.DataOutputStream

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamWriter

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** A Python runner whose worker gets the rows of one iterator in batches of limited rows and bytes. */
trait RowArrowInput extends ArrowInput {
  import RowArrowInput._

  /** As many as a morsel has: batches of fewer would be put together by copying them. */
  protected def mostRows: Int

  private var rows: Iterator[InternalRow] = _
  private lazy val wanted = new BatchRows(mostRows)

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
      wanted.grow()
      true
    }
  }

  /** Asking for the size takes longer than writing a row: that is done when an eighth of the room may have been filled. */
  private def fill(): Unit = {
    var count = 0
    var unseen = 0L
    var full = false
    while (!full && count < wanted.count && rows.hasNext) {
      val row = rows.next()
      arrowWriter.write(row)
      count += 1
      unseen += bytesOf(row)
      if (unseen >= MostUnseen) {
        full = arrowWriter.sizeInBytes() >= MostBytes
        unseen = 0
      }
    }
  }

  /** What the one struct of a row takes as Spark's rows do, a little more than as columns; of others a guess. */
  private def bytesOf(row: InternalRow): Long = row.getStruct(0, 0) match {
    case unsafe: UnsafeRow => unsafe.getSizeInBytes
    case _ => MostUnseen / 64
  }
}

object RowArrowInput {
  private val MostBytes = 16L << 20
  private val MostUnseen = MostBytes / 8
}
