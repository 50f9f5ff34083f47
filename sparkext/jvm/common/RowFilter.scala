package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnVector}

/** Finds the rows of a batch of columns for which conditions hold.
  *
  * That a column is not null, which Catalyst asks for of the keys of most joins, is seen from the column. Other conditions
  * are what Spark makes of them, row by row.
  */
final class RowFilter(conditions: Seq[Expression], input: Seq[Attribute]) {
  private val bound =
    conditions.flatMap(Trees.conjuncts).map(BindReferences.bindReference(_, AttributeSeq(input)))

  private val present: Array[Int] = bound.collect { case IsNotNull(column: BoundReference) => column.ordinal }.toArray

  /** What else is asked, or null. */
  private val predicate: BasePredicate = bound.filter {
    case IsNotNull(_: BoundReference) => false
    case _ => true
  }.reduceOption(And).map(Predicate.create(_)).orNull

  private var found = Array.empty[Int]

  /** How many positions there are. */
  var count = 0

  /** The rows that stay, or null if all do. The array is used again for the next batch. */
  def positions(batch: ColumnarBatch): Array[Int] = {
    val nullable = present.map(batch.column(_)).filter(_.hasNull)
    if (nullable.isEmpty && predicate == null) null
    else {
      if (found.length < batch.numRows) found = new Array[Int](batch.numRows)
      count = 0
      var row = 0
      while (row < batch.numRows) {
        if (isPresent(nullable, row) && (predicate == null || predicate.eval(batch.getRow(row)))) {
          found(count) = row
          count += 1
        }
        row += 1
      }
      if (count == batch.numRows) null else found
    }
  }

  private def isPresent(columns: Array[ColumnVector], row: Int): Boolean = {
    var number = 0
    while (number < columns.length) {
      if (columns(number).isNullAt(row)) return false
      number += 1
    }
    true
  }
}
