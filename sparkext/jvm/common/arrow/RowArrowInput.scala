package org.apache.spark.sql.sparkext.arrow

import java.io.DataOutputStream

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamWriter

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/** A Python runner that sends the rows of one iterator to its worker, in batches with limits for rows and bytes. */
trait RowArrowInput extends ArrowInput {
  import RowArrowInput._

  /** The limit of rows in a batch: as many as in a morsel, because smaller batches would be concatenated, which copies
    * them.
    */
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

  /** Computing the size takes longer than writing a row, so it is computed only whenever another eighth of the limit
    * may have been filled.
    */
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

  /** The bytes of a row's one struct: exact for Spark's own rows, which take a little more than columns; a guess for
    * others.
    */
  private def bytesOf(row: InternalRow): Long = row.getStruct(0, 0) match {
    case unsafe: UnsafeRow => unsafe.getSizeInBytes
    case _ => MostUnseen / 64
  }
}

object RowArrowInput {
  private val MostBytes = 16L << 20
  private val MostUnseen = MostBytes / 8
}
