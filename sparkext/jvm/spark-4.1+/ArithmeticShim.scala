package org.apache.spark.sql.sparkext.shim

import org.apache.spark.sql.catalyst.expressions.{EvalMode, NumericEvalContext, TimestampAddInterval}

/** How expressions store what happens on overflow. */
trait ArithmeticShim {
  type TimePlusInterval = TimestampAddInterval

  type ArithmeticContext = NumericEvalContext

  def arithmetic(mode: EvalMode.Value): ArithmeticContext = NumericEvalContext(mode)

  def evalMode(argument: Any): Option[EvalMode.Value] = Some(argument).collect { case context: NumericEvalContext =>
    context.evalMode
  }
}
