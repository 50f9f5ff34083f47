package org.apache.spark.sql.sparkext.arrow

import org.apache.spark.{InterruptibleIterator, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.execution._
import org.apache.spark.sql.sparkext.expressions.Wording
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons}
import org.apache.spark.sql.sparkext.scan.{PeeledPlan, RowFilter}
import org.apache.spark.sql.types.{StructField, StructType}

/** A source whose operator emits columnar batches, below operators that only drop, rename or filter.
  *
  * Output column i is column `columns(i)` of those batches, for the rows that pass all `filters`. The conditions of one
  * filter are those that Spark tests together.
  */
case class ColumnarInput(source: SparkPlan, columns: Seq[Int], filters: Seq[Seq[Expression]]) {

  /** For each partition, an object that fills Arrow vectors. */
  def execute(): RDD[ColumnsToArrow] = {
    val input = source.output
    val schema =
      StructType(columns.map(number => StructField(s"c$number", input(number).dataType, input(number).nullable)))
    val numbers = columns.toArray
    val wanted = filters
    source.executeColumnar().mapPartitionsInternal { batches =>
      val running = new InterruptibleIterator(TaskContext.get(), batches)
      Iterator.single(new ColumnsToArrow(running, schema, numbers, new RowFilter(wanted, input)))
    }
  }
}

object ColumnarInput {

  /** The columns from which Spark would make the rows of `plan`, or the reason why rows are needed. */
  def of(plan: SparkPlan): Either[String, ColumnarInput] = for {
    peeled <- PeeledPlan.of(plan)
    PeeledPlan(source, _, filters) = peeled
    found = AttributeSeq(source.output)
    _ <- Reasons.check(source.supportsColumnar, Reason("ROWS_OF_OPERATOR", source.nodeName))
    outputs <- Reasons.all(peeled.outputs.map {
      case column: Attribute => Right(column)
      case computed => Left(Reason("COLUMN_OF_SPARK", Wording.of(computed)))
    })
    _ <- Reasons.check(outputs.nonEmpty, Reason("NO_COLUMNS"))
    _ <- outputs.find(column => !ColumnCopy.copies(column.dataType)).map { column =>
      Reason("COLUMN_TYPE", column.name, column.dataType.simpleString)
    }.toLeft(())
    _ <- filters.flatten.flatMap(uncovered).headOption.toLeft(())
  } yield ColumnarInput(source, outputs.map(column => found.indexOf(column.exprId)), filters)

  /** The reason why a condition cannot be evaluated for single rows, if it cannot. */
  private def uncovered(condition: Expression): Option[String] =
    if (!condition.deterministic) Some(Reason("FILTER_NOT_DETERMINISTIC", Wording.of(condition)))
    else if (condition.exists(_.isInstanceOf[PlanExpression[_]]))
      Some(Reason("FILTER_SUBQUERY", Wording.of(condition)))
    else None
}
