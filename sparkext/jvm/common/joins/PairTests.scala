package org.apache.spark.sql.sparkext.joins

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.sparkext.expressions.{Failing, Wording}
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.sql.sparkext.expressions.WorkerEvaluator.{Arrow, Compiled}

/** Who tests the conditions other than keys and ranges: Spark filters the join's output by `filter`, workers test pairs
  * by `condition` and `theta`.
  */
private case class PairTests(filter: Seq[Expression], condition: Seq[Expression], theta: Seq[Expression]) {

  /** The part that keeps workers from testing all of these together, although they cover each one. */
  def uncovered: Option[String] =
    condition.reduceOption(And).flatMap(Arrow.uncovered).orElse(theta.reduceOption(And).flatMap(Compiled.uncovered))
}

private object PairTests {

  /** Distributes conditions. Inner joins with keys leave them to Spark, because the keys have already reduced the
    * pairs; without keys, there are many pairs.
    *
    * Formulas are tested on many pairs at a time, so they come first if there are no keys or ranges. `guarded`: set if
    * a guard rules out errors, so that they need not be considered.
    */
  def among(
      conditions: Seq[Expression],
      sides: Sides,
      keyed: Boolean,
      ranged: Boolean,
      guarded: Boolean,
      article: => String): Either[String, PairTests] = {
    val inner = sides.kind == "inner"
    val mayFail = if (guarded) (_: Expression) => false else Failing.may _
    if (inner && keyed) Right(PairTests(conditions, Nil, Nil))
    else {
      val tested =
        if (inner || !keyed && !ranged || conditions.exists(mayFail)) conditions.filter(Compiled.covers) else Nil
      // A condition that may fail is tested after the conditions before it, which may keep it from failing, or is left
      // to Spark.
      val before = conditions.takeWhile(tested.contains)
      val formulas = tested.filter(test => before.contains(test) || !mayFail(test))
      val others = conditions.filterNot(formulas.contains)
      val (plain, rest) = if (inner) (Nil, others) else others.partition(Arrow.tests)
      val (more, left) = if (inner || !keyed && !ranged) (Nil, rest) else rest.partition(Compiled.covers)
      val theta = conditions.filter(test => formulas.contains(test) || more.contains(test))
      val found = keyed || ranged || theta.exists(test => sides.isAcross(test.references))
      val groups = if (keyed || ranged) Seq(plain, theta, left) else Seq(theta, plain, left)
      val misplaced = if (guarded) None else Failing.misplaced(groups, conditions, sides)
      if (!found) {
        val across = left.find(test => sides.isAcross(test.references)).map(test => s": ${why(test)}").getOrElse("")
        Left(Reason("NO_KEY", across))
      } else if (!inner && left.nonEmpty) {
        Left(Reason("CONDITION_OF_SPARK", article, why(left.head)))
      } else {
        misplaced.map(test => Reason("CONDITION_MAY_FAIL", test.sql))
          .toLeft(PairTests(left, plain, theta))
      }
    }
  }

  private def why(condition: Expression): String =
    Arrow.untested(condition).orElse(Compiled.uncovered(condition)).getOrElse(Wording.of(condition))
}
