package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnVector}

/** Finds the rows of a batch of columns that pass filters, each of which has conditions that Spark tests together.
  *
  * That a column is not null, which Catalyst asks for of the keys of most joins, is seen from the column. Other conditions
  * are what Spark makes of them, row by row.
  */
final class RowFilter(filters: Seq[Seq[Expression]], input: Seq[Attribute]) {
  private val bound = filters.map(_.map(BindReferences.bindReference(_, AttributeSeq(input))))

  private val mayFail = bound.flatten.exists(Failing.may)

  private val present: Array[Int] =
    if (mayFail) Array.empty
    else bound.flatten.collect { case IsNotNull(column: BoundReference) => column.ordinal }.toArray

  /** What else is asked, in this order. */
  private val predicates: Array[BasePredicate] = {
    val asked = if (mayFail) bound.flatMap(inTurn) else bound.flatten.filterNot(isPresence).reduceOption(And).toSeq
    asked.map(Predicate.create(_)).toArray
  }

  private var found = Array.empty[Int]

  /** How many positions there are. */
  var count = 0

  /** The rows that stay, or null if all do. The array is used again for the next batch. */
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

  /** A filter of Spark's tests its parts one after another, and right before each whether what that reads is there: another row
    * may fail if they are tested together.
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
