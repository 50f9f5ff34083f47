package org.apache.spark.sql.sparkext.expressions

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.sql.sparkext.shim.SparkShim
import org.apache.spark.sql.types.DoubleType

/** Transformations and properties of expressions. For errors on the pairs of a join see [[Failing]]. */
private[sparkext] object Expressions {

  /** The expression that a named expression names. */
  def unnamed(column: Expression): Expression = column match {
    case Alias(child, _) => child
    case other => other
  }

  /** The value without Spark's normalisation of floats: workers treat all zeros as equal, and all NaN. */
  def unnormalized(value: Expression): Expression = value match {
    case KnownFloatingPointNormalized(NormalizeNaNAndZero(inner)) => inner
    case other => other
  }

  /** Replaces columns by expressions. Other columns stay. */
  def replacing(columns: AttributeMap[_ <: Expression]): Expression => Expression =
    _.transformUp { case column: Attribute => columns.getOrElse(column, column) }

  /** The column that a column renames, possibly several times. */
  @scala.annotation.tailrec
  def origin(renamed: AttributeMap[Attribute])(column: Attribute): Attribute = renamed.get(column) match {
    case Some(below) => origin(renamed)(below)
    case None => column
  }

  /** Whether a filter keeps the same rows if it is applied later, above further joins; or the reason why not. */
  def deferrable(condition: Expression): Either[String, Unit] =
    if (Trees.isDeep(condition)) Left(Reason("CONDITION_TOO_DEEP"))
    else if (!condition.deterministic) Left(Reason("CONDITION_NOT_DETERMINISTIC", Wording.of(condition)))
    else if (condition.exists(_.isInstanceOf[PlanExpression[_]])) Left(Reason("CONDITION_SUBQUERY"))
    else Right(())

  /** Whether an expression is known never to raise an error. Most expressions may raise one in ANSI mode. */
  def neverFails(expression: Expression): Boolean = !expression.exists(mayFail)

  /** Whether an expression, computed for every row of its side, can fail only by the overflow of a sum. */
  def mayBeBound(expression: Expression): Boolean = !expression.exists {
    case _: Add | _: Subtract | _: DateAdd | _: DateSub | _: SparkShim.TimePlusInterval => false
    case _: If | _: BinaryComparison | _: UnixDate | Abs(_, false) => false
    case product: Multiply => product.dataType != DoubleType
    case other => mayFail(other)
  }

  private def mayFail(expression: Expression): Boolean = expression match {
    case _: Attribute | _: Literal | _: Coalesce | _: Upper | _: Lower => false
    case _: KnownFloatingPointNormalized | _: NormalizeNaNAndZero => false
    case cast: Cast => !Cast.canUpCast(cast.child.dataType, cast.dataType)
    case _ => true
  }
}
