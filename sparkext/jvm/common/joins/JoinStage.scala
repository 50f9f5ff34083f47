package org.apache.spark.sql.sparkext.joins

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.planning.ExtractSingleColumnNullAwareAntiJoin
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.sparkext.expressions.{Comparison, Expressions, Failing, Trees, Wording}
import org.apache.spark.sql.sparkext.planning.{PipelinedAsOf, PipelinedJoinHint, StageAsOf}
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons}

/** One comparison by which a join finds pairs, `probe operator build`. `probe` may refer to any earlier source of the
  * chain, `build` to the build side.
  */
case class StageComparison(probe: Expression, operator: String, build: Expression) {
  def nullSafe: Boolean = operator == Comparison.NullSafe

  def map(change: Expression => Expression): StageComparison = copy(probe = change(probe), build = change(build))

  def described: String = s"${Wording.of(probe)} $operator ${Wording.of(build)}"
}

/** One supported join, as a stage of a pipeline: every probe row is looked up in the index of `build`.
  *
  * `kind` is the join type as seen from the probe side (a right outer join is a left one with its sides exchanged),
  * `existence` the flag that an existence join adds. `filter` selects the rows that the join emits; `condition` and
  * `theta` decide whether a pair matches. For an inner join these have the same effect. Workers compile `theta` and
  * `guard`; for `guard` see [[Ranged]].
  */
case class JoinStage(
    kind: String,
    probe: LogicalPlan,
    build: LogicalPlan,
    keys: Seq[StageComparison],
    ranges: Seq[StageComparison],
    asOf: Option[StageAsOf] = None,
    filter: Option[Expression] = None,
    condition: Option[Expression] = None,
    theta: Option[Expression] = None,
    guard: Option[Expression] = None,
    existence: Option[Attribute] = None,
    hint: Option[PipelinedJoinHint] = None,
    foreignHint: Option[String] = None) {

  /** Whether rows of the build side may be missing, with nulls in their place. */
  def outer: Boolean = kind == "left" || kind == "full"

  /** Whether rows of the probe side may be missing, too: then nothing below can be a stage of the same pipeline. */
  def full: Boolean = kind == "full"

  /** Whether the join emits columns of the build side. */
  def emitsBuild: Boolean = kind != "semi" && kind != "anti" && kind != "existence"

  /** Whether there is nothing to look rows up by: then every pair is tested. */
  def nested: Boolean = keys.isEmpty && ranges.isEmpty && asOf.isEmpty

  /** The conditions for a pair in addition to its keys. */
  def conditions: Seq[Expression] = condition.toSeq ++ theta

  /** The expression on which workers may encounter an error. */
  def formula: Option[Expression] = guard.orElse(theta)

  /** `probes`: the expressions by which probe rows are looked up. `indexed`: the expressions by which the build side is
    * indexed.
    */
  def probes: Seq[Expression] = keys.map(_.probe) ++ ranges.map(_.probe) ++ asOf.map(_.probe)
  def indexed: Seq[Expression] = keys.map(_.build) ++ ranges.map(_.build) ++ asOf.map(_.build)
}

object JoinStage {

  /** The stage for a join, or the reason why there is none. */
  def of(plan: LogicalPlan): Either[String, JoinStage] = plan match {
    case join: Join => of(join)
    case join: PipelinedAsOf => Right(join.stage)
    case other => Left(Reason("NOT_A_JOIN", other.nodeName))
  }

  private def of(join: Join): Either[String, JoinStage] =
    for {
      _ <- Reasons.check(!join.isStreaming, Reason("STREAMING_JOIN"))
      _ <- Reasons.check(!FileFunctions.isBelow(join), FileFunctions.AboveJoin)
      _ <- Reasons.check(
        ExtractSingleColumnNullAwareAntiJoin.unapply(join).isEmpty,
        Reason("NOT_IN"))
      sides <- Sides.of(join)
      predicates = join.condition.map(Trees.conjuncts).getOrElse(Nil)
      _ <- Reasons.check(!predicates.exists(Trees.isDeep), Reason("CONDITION_TOO_DEEP"))
      (others, keys) = predicates.partitionMap(predicate => key(predicate, sides).toRight(predicate))
      Ranged(residual, ranges, guard) = Ranges.among(others, keys.nonEmpty, sides)
      _ <- Reasons.all(residual.map(Expressions.deferrable))
      tests <- PairTests.among(residual, sides, keys.nonEmpty, ranges.nonEmpty, guard.isDefined, article(join.joinType))
      _ <- tests.uncovered.toLeft(())
      _ <- keys.flatMap(unsupportedKey).headOption.toLeft(())
      _ <- untransportable(sides.build.output).toLeft(())
    } yield JoinStage(
      sides.kind,
      sides.probe,
      sides.build,
      keys,
      ranges,
      None,
      filter(tests.filter),
      tests.condition.reduceOption(And),
      tests.theta.reduceOption(And),
      guard,
      sides.existence,
      sides.hint,
      foreignHint(join.hint)
    )

  /** All conditions as one. A filter drops a row at the first condition that is null, whereas a join's condition then
    * evaluates the others as well.
    */
  private def filter(conditions: Seq[Expression]): Option[Expression] =
    conditions.reduceOption(And).map { all =>
      if (conditions.length > 1 && conditions.exists(Failing.may)) EqualNullSafe(all, Literal.TrueLiteral) else all
    }

  /** The reason for the first of these columns that cannot be passed to workers and back unchanged. */
  def untransportable(columns: Seq[Attribute]): Option[String] =
    columns.find(column => !KeyTypes.travels(column.dataType)).map { column =>
      Reason("COLUMN_NOT_EXCHANGED", column.name, column.dataType.simpleString)
    }

  /** The condition as an equality of the two sides, if it is one. */
  def key(predicate: Expression, sides: Sides): Option[StageComparison] = predicate match {
    case Comparison(operator @ ("=" | Comparison.NullSafe), left, right) =>
      sides.comparison(operator, left, right).map(_.map(Expressions.unnormalized))
    case _ => None
  }

  def unsupportedKey(key: StageComparison): Option[String] = {
    val sides = Seq(key.probe, key.build)
    if (sides.exists(!_.deterministic)) {
      Some(Reason("KEY_NOT_DETERMINISTIC", Wording.of(key.probe), Wording.of(key.build)))
    } else if (sides.exists(_.exists(_.isInstanceOf[PlanExpression[_]]))) Some(Reason("KEY_SUBQUERY"))
    else if (key.probe.dataType != key.build.dataType) {
      Some(Reason("KEY_TYPES_DIFFER", sides.map(_.dataType.simpleString).mkString(" and ")))
    } else sides.find(side => KeyTypes.name(side.dataType).isEmpty).map { side =>
      Reason("KEY_TYPE", side.dataType.simpleString, Wording.of(side))
    }
  }

  private def foreignHint(hint: JoinHint): Option[String] =
    Seq(hint.leftHint, hint.rightHint).flatten.flatMap(_.strategy).headOption.map(_.displayName)

  private def article(joinType: JoinType): String = {
    val name = kindOf(joinType)
    if ("aeiou".contains(name.head)) s"an $name" else s"a $name"
  }

  /** The name of a join type. Not every type has SQL. */
  def kindOf(joinType: JoinType): String = joinType match {
    case _: ExistenceJoin => "existence"
    case other => other.sql.toLowerCase(java.util.Locale.ROOT)
  }
}
