package org.apache.spark.sql.sparkext.arrow

import org.apache.arrow.vector.{BaseVariableWidthVector, FieldVector}

import org.apache.spark.sql.sparkext.scan.RowFilter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.ColumnarBatch

/** Fills Arrow vectors from small columnar batches, until they form a batch that is worth sending.
  *
  * `filter` selects the rows of a batch. A batch is copied before the next one is requested, because Spark's reader may
  * reuse it.
  */
final class ColumnsToArrow(batches: Iterator[ColumnarBatch], schema: StructType, columns: Array[Int], filter: RowFilter)
    extends AutoCloseable {
  import ColumnsToArrow._

  private var batch: ColumnarBatch = _
  private var positions: Array[Int] = _
  private var from = 0
  private var until = 0
  private val wanted =
    new BatchRows(math.max(1, math.min(MostRows, MostBytes / schema.map(_.dataType.defaultSize).sum)))
  private var copies: Array[ColumnCopy] = _

  /** Fill the vectors with the next rows, and return their number: 0 if none are left. */
  def fill(vectors: Seq[FieldVector]): Int = {
    if (copies == null) copies = copying(vectors)
    val target = wanted.count
    copies.foreach(_.reserve(target))
    var rows = 0
    var full = false
    while (!full && rows < target && advance()) {
      val copied = append(rows, math.min(until - from, target - rows))
      rows += copied
      from += copied
      full = copied == 0
    }
    copies.foreach(_.finish(rows))
    wanted.grow()
    rows
  }

  /** Free the current batch. */
  override def close(): Unit = if (batch != null) {
    batch.closeIfFreeable()
    batch = null
  }

  /** Copy rows after the first `at` rows, and return how many fitted. Columns of variable width are copied first,
    * because they determine how many rows fit.
    */
  private def append(at: Int, count: Int): Int = {
    var rows = new Rows(positions, from, from + count)
    byLength.foreach { number => rows = rows.take(copies(number).copy(batch.column(columns(number)), rows, at)) }
    rows.count
  }

  private lazy val byLength: Array[Int] =
    copies.indices.sortBy(number => !copies(number).isInstanceOf[VariableWidthCopy]).toArray

  /** Whether there is a row left, at `from` of `batch`. */
  private def advance(): Boolean = {
    while (from >= until) {
      close()
      if (!batches.hasNext) return false
      batch = batches.next()
      positions = filter.positions(batch)
      from = 0
      until = if (positions == null) batch.numRows else filter.count
    }
    true
  }

  private def copying(vectors: Seq[FieldVector]): Array[ColumnCopy] = {
    val ofAnyLength = vectors.count(_.isInstanceOf[BaseVariableWidthVector])
    val each = math.min(MostBytesOfText, MostBytesOfTexts / math.max(1, ofAnyLength))
    schema.zip(vectors).map { case (field, vector) =>
      ColumnCopy.of(field.dataType, vector, field.nullable, each)
        .getOrElse(throw new IllegalStateException(s"columns of ${field.dataType} are not copied to $vector"))
    }.toArray
  }
}

object ColumnsToArrow {
  private val MostRows = 65536
  private val MostBytes = 32 << 20

  /** Limits for the bytes of variable-width values: for one column, and for all of them together. */
  private val MostBytesOfText = 16L << 20
  private val MostBytesOfTexts = 64L << 20
}
