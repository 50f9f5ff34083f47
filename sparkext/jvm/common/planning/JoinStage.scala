package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.planning.ExtractSingleColumnNullAwareAntiJoin
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._

/** One equality of a join. `probe` may refer to any earlier source of the chain, `build` to the build side. */
case class StageKey(probe: Expression, build: Expression, nullSafe: Boolean)

/** One comparison of a range join, `probe operator build`. */
case class StageRange(probe: Expression, operator: String, build: Expression) {

  /** With sums that do not fail. Where they overflow, this comparison is none. */
  def unfailing: StageRange = copy(probe = Failing.unfailing(probe), build = Failing.unfailing(build))
}

/** One supported join, as a stage of a pipeline: every probe row passes by the index of `build`.
  *
  * `kind` is what the probe side sees (a right outer join is a left one with its sides exchanged), `existence` the flag that
  * an existence join adds. `filter` has to hold for what the join emits, `condition` and `theta` for a pair to be one: for
  * an inner join these are the same. `theta` is what workers compile, and so is `guard`, see [[Ranged]].
  */
case class JoinStage(
    kind: String,
    probe: LogicalPlan,
    build: LogicalPlan,
    keys: Seq[StageKey],
    ranges: Seq[StageRange],
    asOf: Option[StageAsOf],
    filter: Option[Expression],
    condition: Option[Expression],
    theta: Option[Expression],
    guard: Option[Expression],
    existence: Option[Attribute],
    hint: Option[PipelinedJoinHint],
    foreignHint: Option[String]) {

  /** Whether rows of the build side may be missing, all null. */
  def outer: Boolean = kind == "left" || kind == "full"

  /** Whether rows of the probe side may be missing, too: then nothing below can be a stage of the same pipeline. */
  def full: Boolean = kind == "full"

  /** Whether columns of the build side come out. */
  def emitsBuild: Boolean = kind != "semi" && kind != "anti" && kind != "existence"

  /** Whether there is nothing to look rows up by: then every pair is tried. */
  def nested: Boolean = keys.isEmpty && ranges.isEmpty && asOf.isEmpty

  /** What has to hold for a pair beside its keys. */
  def conditions: Seq[Expression] = condition.toSeq ++ theta

  /** What workers may come upon an error in. */
  def formula: Option[Expression] = guard.orElse(theta)

  /** What probe rows are looked up by, and what the build side is indexed by. */
  def probes: Seq[Expression] = keys.map(_.probe) ++ ranges.map(_.probe) ++ asOf.map(_.probe)
  def indexed: Seq[Expression] = keys.map(_.build) ++ ranges.map(_.build) ++ asOf.map(_.build)
}

object JoinStage {

  /** The stage that a join makes, or why it makes none. */
  def of(plan: LogicalPlan): Either[String, JoinStage] = plan match {
    case join: Join => of(join)
    case join: PipelinedAsOf => Right(join.stage)
    case other => Left(s"not a join: ${other.nodeName}")
  }

  private def of(join: Join): Either[String, JoinStage] = for {
    _ <- check(!join.isStreaming, "a streaming join")
    _ <- check(!FileFunctions.isBelow(join), FileFunctions.Reason)
    _ <- check(ExtractSingleColumnNullAwareAntiJoin.unapply(join).isEmpty, "NOT IN, which Spark looks up in a hash table")
    sides <- Sides.of(join)
    predicates = join.condition.map(Trees.conjuncts).getOrElse(Nil)
    _ <- check(!predicates.exists(Trees.isDeep), "a condition nested too deeply")
    (others, keys) = predicates.partitionMap(predicate => key(predicate, sides).toRight(predicate))
    Ranged(residual, ranges, guard) = Ranges.among(others, keys.nonEmpty, sides)
    _ <- residual.map(Expressions.deferrable).collectFirst { case Left(reason) => reason }.toLeft(())
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
    foreignHint(join.hint))

  /** All of these. A filter drops a row at the first that is null, and a join's condition looks at the others as well. */
  private def filter(conditions: Seq[Expression]): Option[Expression] =
    conditions.reduceOption(And).map { all =>
      if (conditions.length > 1 && conditions.exists(Failing.may)) EqualNullSafe(all, Literal.TrueLiteral) else all
    }

  /** The first of these columns that does not travel to the workers and back unchanged. */
  def untransportable(columns: Seq[Attribute]): Option[String] =
    columns.find(column => !KeyTypes.travels(column.dataType)).map { column =>
      s"column ${column.name} of type ${column.dataType.simpleString} cannot be passed between Spark and Python"
    }

  /** The equality of the two sides that a condition is. */
  def key(predicate: Expression, sides: Sides): Option[StageKey] = predicate match {
    case EqualTo(left, right) => sides.key(left, right, nullSafe = false)
    case EqualNullSafe(left, right) => sides.key(left, right, nullSafe = true)
    case _ => None
  }

  def unsupportedKey(key: StageKey): Option[String] = {
    val sides = Seq(key.probe, key.build)
    if (sides.exists(!_.deterministic)) {
      Some(s"a key that is not deterministic: ${Wording.of(key.probe)} = ${Wording.of(key.build)}")
    } else if (sides.exists(_.exists(_.isInstanceOf[PlanExpression[_]]))) Some("a subquery in a join key")
    else if (key.probe.dataType != key.build.dataType) {
      Some(s"keys of different types: ${sides.map(_.dataType.simpleString).mkString(" and ")}")
    } else sides.find(side => KeyTypes.name(side.dataType).isEmpty).map { side =>
      s"a key of type ${side.dataType.simpleString}: ${Wording.of(side)}"
    }
  }

  private def foreignHint(hint: JoinHint): Option[String] =
    Seq(hint.leftHint, hint.rightHint).flatten.flatMap(_.strategy).headOption.map(_.displayName)

  private def article(joinType: JoinType): String = {
    val name = kindOf(joinType)
    if ("aeiou".contains(name.head)) s"an $name" else s"a $name"
  }

  /** The kind of a join in words: not every one has SQL. */
  def kindOf(joinType: JoinType): String = joinType match {
    case _: ExistenceJoin => "existence"
    case other => other.sql.toLowerCase(java.util.Locale.ROOT)
  }

  def check(holds: Boolean, reason: => String): Either[String, Unit] = if (holds) Right(()) else Left(reason)
}
