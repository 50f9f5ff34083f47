package org.apache.spark.sql.sparkext.scan

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.sparkext.expressions.Failing
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}

/** Finds the rows of a columnar batch that pass filters. The conditions of one filter are those that Spark tests
  * together.
  *
  * Null checks, which Catalyst adds for the keys of most joins, are answered by the column itself. Spark's own
  * predicates evaluate the other conditions, row by row.
  */
final class RowFilter(filters: Seq[Seq[Expression]], input: Seq[Attribute]) {
  private val bound = filters.map(_.map(BindReferences.bindReference(_, AttributeSeq(input))))

  private val mayFail = bound.flatten.exists(Failing.may)

  private val present: Array[Int] =
    if (mayFail) Array.empty
    else bound.flatten.collect { case IsNotNull(column: BoundReference) => column.ordinal }.toArray

  /** The other conditions, in the order of their evaluation. */
  private val predicates: Array[BasePredicate] = {
    val asked = if (mayFail) bound.flatMap(inTurn) else bound.flatten.filterNot(isPresence).reduceOption(And).toSeq
    asked.map(Predicate.create(_)).toArray
  }

  private var found = Array.empty[Int]

  /** The number of positions in the last result. */
  var count = 0

  /** The positions of the rows that pass, or null if all do. The array is reused for the next batch. */
  def positions(batch: ColumnarBatch): Array[Int] = {
    val nullable = present.map(batch.column(_)).filter(_.hasNull)
    if (nullable.isEmpty && predicates.isEmpty) null
    else {
      if (found.length < batch.numRows) found = new Array[Int](batch.numRows)
      count = 0
      var row = 0
      while (row < batch.numRows) {
        if (isPresent(nullable, row) && holds(batch, row)) {
          found(count) = row
          count += 1
        }
        row += 1
      }
      if (count == batch.numRows) null else found
    }
  }

  /** The conditions of a filter in Spark's order: Spark tests its parts one after another, and right before each part
    * whether the columns that it reads are null. Tested together, a part might fail on another row.
    */
  private def inTurn(conditions: Seq[Expression]): Seq[Expression] = {
    val (presences, others) = conditions.partition(isPresence)
    val tested = others.flatMap(other => presences.filter(reads(other, _)) :+ other)
    (tested ++ presences).distinct
  }

  private def reads(condition: Expression, presence: Expression): Boolean =
    condition.exists(part => presence.children.exists(part.semanticEquals))

  private def isPresence(condition: Expression): Boolean = condition match {
    case IsNotNull(_: BoundReference) => true
    case _ => false
  }

  private def holds(batch: ColumnarBatch, row: Int): Boolean = {
    var number = 0
    while (number < predicates.length) {
      if (!predicates(number).eval(batch.getRow(row))) return false
      number += 1
    }
    true
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
