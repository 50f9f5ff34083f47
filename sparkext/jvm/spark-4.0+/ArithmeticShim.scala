package org.apache.spark.sql.sparkext.shim

import org.apache.spark.sql.catalyst.expressions.{EvalMode, TimeAdd}

/** How expressions store what happens on overflow. */
trait ArithmeticShim {
  type TimePlusInterval = TimeAdd

  type ArithmeticContext = EvalMode.Value

  def arithmetic(mode: EvalMode.Value): ArithmeticContext = mode

  def evalMode(argument: Any): Option[EvalMode.Value] = Some(argument).collect { case mode: EvalMode.Value => mode }
}
