package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum

/** How arithmetic treats what does not fit its type. Only versions know where an operation keeps that. */
object Arithmetic {
  def isAnsi(operation: BinaryArithmetic): Boolean = mode(operation).contains(EvalMode.ANSI)
  def isTry(operation: BinaryArithmetic): Boolean = mode(operation).contains(EvalMode.TRY)
  def isAnsi(sum: Sum): Boolean = mode(sum).contains(EvalMode.ANSI)
  def isTry(sum: Sum): Boolean = mode(sum).contains(EvalMode.TRY)

  def plus(one: Expression, other: Expression, mode: EvalMode.Value): Add = Add(one, other, SparkShim.arithmetic(mode))

  def minus(one: Expression, other: Expression, mode: EvalMode.Value): Subtract =
    Subtract(one, other, SparkShim.arithmetic(mode))

  private def mode(operation: Product): Option[EvalMode.Value] = operation.productIterator.flatMap(SparkShim.evalMode).nextOption()
}
