package org.apache.spark.sql.sparkext

import org.apache.spark.{InterruptibleIterator, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.execution._
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
  def of(plan: SparkPlan): Either[String, ColumnarInput] = peel(plan).flatMap { case Peeled(source, outputs, filters) =>
    val columns = outputs.map(column => source.output.indexWhere(_.exprId == column.exprId))
    if (outputs.isEmpty) Left("no columns")
    else outputs.find(column => !ColumnCopy.copies(column.dataType)).map { column =>
      s"column ${column.name} of type ${column.dataType.simpleString}"
    }.orElse(filters.flatten.flatMap(uncovered).headOption).toLeft(ColumnarInput(source, columns, filters))
  }

  /** `outputs` and `filters` refer to the output of the source. The filters are in the order of their evaluation. */
  private case class Peeled(source: SparkPlan, outputs: Seq[Attribute], filters: Seq[Seq[Expression]])

  private def peel(plan: SparkPlan): Either[String, Peeled] = plan match {
    case WholeStageCodegenExec(child) => peel(child)
    case InputAdapter(child) => peel(child)
    case ColumnarToRowExec(child) => peel(child)
    case FilterExec(condition, child) =>
      val parts = Trees.conjuncts(condition)
      if (parts.exists(Trees.isDeep)) Left("a filter nested too deeply")
      else peel(child).map { below =>
        below.copy(filters =
          below.filters :+ parts.map(Expressions.replacing(AttributeMap(child.output.zip(below.outputs)))))
      }
    case ProjectExec(columns, child) =>
      peel(child).flatMap { below =>
        val sources = AttributeMap(child.output.zip(below.outputs))
        val outputs = columns.map {
          case attribute: Attribute => sources.get(attribute)
          case Alias(attribute: Attribute, _) => sources.get(attribute)
          case _ => None
        }
        columns.zip(outputs).collectFirst { case (column, None) =>
          s"a column that Spark computes: ${Wording.of(column)}"
        }
          .toLeft(below.copy(outputs = outputs.flatten))
      }
    case source if source.supportsColumnar => Right(Peeled(source, source.output, Nil))
    case other => Left(s"rows come from ${other.nodeName}")
  }

  /** The reason why a condition cannot be evaluated for single rows, if it cannot. */
  private def uncovered(condition: Expression): Option[String] =
    if (!condition.deterministic) Some(s"a filter that is not deterministic: ${Wording.of(condition)}")
    else if (condition.exists(_.isInstanceOf[PlanExpression[_]]))
      Some(s"a filter with a subquery: ${Wording.of(condition)}")
    else None
}
