package org.apache.spark.sql.sparkext.expressions

import org.json4s.JsonAST.JObject

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.sparkext.joins.{ColumnRef, KeyTypes}
import org.apache.spark.sql.sparkext.protocol.{Reason, Shared}
import org.apache.spark.sql.types.DecimalType

/** One of the two evaluators of expressions in workers, and the part of the language that it covers: Python's
  * `plans/expressions/evaluators.py`.
  */
sealed abstract class WorkerEvaluator(name: String) {
  private val covered = Shared[Map[String, Covered]]("evaluators").apply(name)

  /** The condition as JSON, or the part that is not covered. */
  def of(condition: Expression, place: Attribute => ColumnRef): Either[String, JObject] =
    tooLarge(condition).toLeft(()).flatMap(_ => WorkerExpression.of(condition, place))
      .flatMap(tree => uncovered(tree).toLeft(tree.json))

  protected def tooLarge(condition: Expression): Option[String] = None

  /** The part of a condition that is not covered, if there is any. */
  def uncovered(condition: Expression): Option[String] = of(condition, _ => ColumnRef(0, 0)).left.toOption

  def covers(condition: Expression): Boolean = uncovered(condition).isEmpty

  private def uncovered(node: WorkerExpression): Option[String] = {
    val looksAt = if (covered.any_null && node.op == "is_null") node.args.filterNot(_.op == "column") else node.args
    if (runs(node)) looksAt.iterator.flatMap(uncovered(_)).nextOption() else Some(Wording.of(node.origin))
  }

  private def runs(node: WorkerExpression): Boolean =
    covered.operators(node.op) && KeyTypes.family(node.dataType).exists(covered.types) && (node.dataType match {
      case decimal: DecimalType => decimal.precision <= covered.digits && decimal.scale >= 0
      case _ => true
    })
}

object WorkerEvaluator {

  /** Evaluates whole columns at a time. */
  object Arrow extends WorkerEvaluator("arrow") {

    /** Whether it may test rows in place of Spark, including rows that Spark's earlier conditions would have excluded.
      */
    def tests(condition: Expression): Boolean = untested(condition).isEmpty

    /** The part that prevents this: one that is not covered, or that may fail. */
    def untested(condition: Expression): Option[String] =
      uncovered(condition).orElse(Failing.part(condition).map(Wording.of))
  }

  /** Evaluates pair by pair, in code compiled for the condition. */
  object Compiled extends WorkerEvaluator("compiled") {
    private val Largest = 200 // takes some three seconds to compile

    override protected def tooLarge(condition: Expression): Option[String] =
      if (Trees.isLarger(condition, Largest)(computed)) Some(Reason("FORMULA_TOO_LARGE")) else None

    /** The parts of an expression that are computed. The constants of a list are looked up instead, whatever their
      * number.
      */
    private def computed(expression: Expression): Seq[Expression] = expression match {
      case Listed(value, _, others) => value +: others
      case other => other.children
    }
  }
}

/** The part of the language that an evaluator covers: Python's `Evaluator`. */
private case class Covered(operators: Set[String], types: Set[String], digits: Int, any_null: Boolean)
