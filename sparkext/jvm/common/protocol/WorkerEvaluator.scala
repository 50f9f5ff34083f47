package org.apache.spark.sql.sparkext

import org.json4s.JsonAST.JObject

import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.types.DecimalType

/** One of the two that evaluate expressions in workers, and what it covers of their language: Python's `plans/evaluators.py`. */
sealed abstract class WorkerEvaluator(name: String) {
  import Shared.formats

  private val table = Shared("evaluators") \ name
  private val operators = (table \ "operators").extract[Set[String]]
  private val types = (table \ "types").extract[Set[String]]
  private val digits = (table \ "digits").extract[Int]
  private val anyNull = (table \ "any_null").extract[Boolean]

  /** The condition as JSON, or what is not covered of it. */
  def of(condition: Expression, place: Attribute => ColumnRef): Either[String, JObject] =
    tooLarge(condition).toLeft(()).flatMap(_ => WorkerExpression.of(condition, place))
      .flatMap(tree => uncovered(tree).toLeft(tree.json))

  protected def tooLarge(condition: Expression): Option[String] = None

  /** The part of a condition that is not covered, if there is any. */
  def uncovered(condition: Expression): Option[String] = of(condition, _ => ColumnRef(0, 0)).left.toOption

  def covers(condition: Expression): Boolean = uncovered(condition).isEmpty

  private def uncovered(node: WorkerExpression): Option[String] = {
    val looksAt = if (anyNull && node.op == "is_null") node.args.filterNot(_.op == "column") else node.args
    if (runs(node)) looksAt.iterator.flatMap(uncovered(_)).nextOption() else Some(Wording.of(node.origin))
  }

  private def runs(node: WorkerExpression): Boolean =
    operators(node.op) && KeyTypes.family(node.dataType).exists(types) && (node.dataType match {
      case decimal: DecimalType => decimal.precision <= digits && decimal.scale >= 0
      case _ => true
    })
}

object WorkerEvaluator {

  /** Whole columns at a time. */
  object Arrow extends WorkerEvaluator("arrow") {

    /** Whether it may test rows in place of Spark: all of them, whatever else Spark would have tested before. */
    def tests(condition: Expression): Boolean = untested(condition).isEmpty

    /** What keeps it from that: a part that is not covered, or may fail. */
    def untested(condition: Expression): Option[String] = uncovered(condition).orElse(Failing.part(condition).map(Wording.of))
  }

  /** Pair by pair, in code that is made for the condition. */
  object Compiled extends WorkerEvaluator("compiled") {
    private val Largest = 200 // what takes some three seconds to compile

    override protected def tooLarge(condition: Expression): Option[String] =
      if (Trees.isLarger(condition, Largest)(computed)) Some("a formula too large to compile") else None

    /** What is computed for an expression: the constants of a list are looked up, however many they are. */
    private def computed(expression: Expression): Seq[Expression] = expression match {
      case Listed(value, _, others) => value +: others
      case other => other.children
    }
  }
}
