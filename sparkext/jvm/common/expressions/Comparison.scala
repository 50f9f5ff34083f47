package org.apache.spark.sql.sparkext.expressions

import org.apache.spark.sql.catalyst.expressions._

/** A comparison of two values, with the operator as plans name it. */
object Comparison {
  val NullSafe = "<=>"

  def apply(operator: String, left: Expression, right: Expression): Expression = operator match {
    case "=" => EqualTo(left, right)
    case NullSafe => EqualNullSafe(left, right)
    case "<" => LessThan(left, right)
    case "<=" => LessThanOrEqual(left, right)
    case ">" => GreaterThan(left, right)
    case ">=" => GreaterThanOrEqual(left, right)
  }

  def unapply(expression: Expression): Option[(String, Expression, Expression)] = expression match {
    case EqualTo(left, right) => Some(("=", left, right))
    case EqualNullSafe(left, right) => Some((NullSafe, left, right))
    case LessThan(left, right) => Some(("<", left, right))
    case LessThanOrEqual(left, right) => Some(("<=", left, right))
    case GreaterThan(left, right) => Some((">", left, right))
    case GreaterThanOrEqual(left, right) => Some((">=", left, right))
    case _ => None
  }

  /** The operator for the same comparison with its sides exchanged. */
  def mirrored(operator: String): String = operator match {
    case "<" => ">"
    case "<=" => ">="
    case ">" => "<"
    case ">=" => "<="
    case symmetric => symmetric
  }
}
