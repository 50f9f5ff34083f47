package org.apache.spark.sql.sparkext.expressions

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum
import org.apache.spark.sql.sparkext.shim.SparkShim

/** How arithmetic handles results that do not fit their type. The field that stores this mode depends on the Spark
  * version.
  */
object Arithmetic {
  def isAnsi(operation: BinaryArithmetic): Boolean = mode(operation).contains(EvalMode.ANSI)
  def isTry(operation: BinaryArithmetic): Boolean = mode(operation).contains(EvalMode.TRY)
  def isAnsi(sum: Sum): Boolean = mode(sum).contains(EvalMode.ANSI)
  def isTry(sum: Sum): Boolean = mode(sum).contains(EvalMode.TRY)

  def plus(one: Expression, other: Expression, mode: EvalMode.Value): Add = Add(one, other, SparkShim.arithmetic(mode))

  def minus(one: Expression, other: Expression, mode: EvalMode.Value): Subtract =
    Subtract(one, other, SparkShim.arithmetic(mode))

  private def mode(operation: Product): Option[EvalMode.Value] =
    operation.productIterator.flatMap(SparkShim.evalMode).nextOption()
}
