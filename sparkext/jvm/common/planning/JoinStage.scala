package org.apache.spark.sql.sparkext

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero
import org.apache.spark.sql.catalyst.planning.ExtractSingleColumnNullAwareAntiJoin
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.types.DoubleType

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
    _ <- check(keys.nonEmpty || sides.kind != "full", "a full outer join without an equality")
    _ <- check(residual.isEmpty || sides.kind != "full", "a full outer join with a condition beside its keys")
    _ <- residual.map(Expressions.deferrable).collectFirst { case Left(reason) => reason }.toLeft(())
    tests <- Tests.among(residual, sides, keys.nonEmpty, ranges.nonEmpty, guard.isDefined, article(join.joinType))
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
      s"column ${column.name} of type ${column.dataType.simpleString} does not travel between Spark and Python"
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

/** Who tests what beside keys and ranges: Spark filters what the join emits by `filter`, workers test pairs. */
private case class Tests(filter: Seq[Expression], condition: Seq[Expression], theta: Seq[Expression]) {

  /** What keeps workers from testing all of these together, each of which they know. */
  def uncovered: Option[String] =
    condition.reduceOption(And).flatMap(WorkerCondition.of(_, _ => ColumnRef(0, 0)).left.toOption)
      .orElse(theta.reduceOption(And).flatMap(WorkerFormula.of(_, _ => ColumnRef(0, 0)).left.toOption))
}

private object Tests {

  /** Inner joins leave to Spark what keys have narrowed down already; without keys, pairs are many.
    *
    * Formulas are tested many pairs at a time, so they go first where there is nothing else. `guarded`: nothing fails.
    */
  def among(
      conditions: Seq[Expression],
      sides: Sides,
      keyed: Boolean,
      ranged: Boolean,
      guarded: Boolean,
      article: => String): Either[String, Tests] = {
    val inner = sides.kind == "inner"
    val mayFail = if (guarded) (_: Expression) => false else Failing.may _
    if (inner && keyed) Right(Tests(conditions, Nil, Nil))
    else {
      val tested = if (inner || !keyed && !ranged || conditions.exists(mayFail)) conditions.filter(WorkerFormula.covers) else Nil
      // What may fail comes after the conditions before it, which may keep it from failing, or is left to Spark.
      val before = conditions.takeWhile(tested.contains)
      val formulas = tested.filter(test => before.contains(test) || !mayFail(test))
      val others = conditions.filterNot(formulas.contains)
      val (plain, rest) = if (inner) (Nil, others) else others.partition(WorkerCondition.of(_, _ => ColumnRef(0, 0)).isRight)
      val (more, left) = if (inner || !keyed && !ranged) (Nil, rest) else rest.partition(WorkerFormula.covers)
      val theta = conditions.filter(test => formulas.contains(test) || more.contains(test))
      val found = keyed || ranged || theta.exists(test => sides.isAcross(test.references))
      val groups = if (keyed || ranged) Seq(plain, theta, left) else Seq(theta, plain, left)
      val misplaced = if (guarded) None else Failing.misplaced(groups, conditions, sides)
      if (!found) {
        val across = left.find(test => sides.isAcross(test.references)).map(test => s": ${why(test)}").getOrElse("")
        Left(s"neither an equality nor a comparison between the two sides, nor a formula that workers compile$across")
      } else if (!inner && left.nonEmpty) {
        Left(s"a condition beside the keys of $article join that only Spark evaluates: ${why(left.head)}")
      } else {
        misplaced.map(test => s"a condition that may fail, which Spark tests on other pairs: ${test.sql}")
          .toLeft(Tests(left, plain, theta))
      }
    }
  }

  private def why(condition: Expression): String =
    Seq(WorkerCondition.of(condition, _ => ColumnRef(0, 0)), WorkerFormula.of(condition, _ => ColumnRef(0, 0)))
      .collectFirst { case Left(part) => part }
      .getOrElse(Wording.of(condition))
}

/** Which side of a join streams and which is indexed. */
private[sparkext] case class Sides(
    kind: String,
    probe: LogicalPlan,
    build: LogicalPlan,
    hint: Option[PipelinedJoinHint],
    existence: Option[Attribute] = None) {

  def key(left: Expression, right: Expression, nullSafe: Boolean): Option[StageKey] =
    if (areSides(left, right)) Some(StageKey(Sides.plain(left), Sides.plain(right), nullSafe))
    else if (areSides(right, left)) Some(StageKey(Sides.plain(right), Sides.plain(left), nullSafe))
    else None

  /** Whether one expression is of the probe side, and the other of the build side. */
  def areSides(one: Expression, other: Expression): Boolean = belongs(one, probe) && belongs(other, build)

  /** Whether columns are of both sides. */
  def isAcross(columns: AttributeSet): Boolean =
    Seq(probe, build).forall(side => columns.exists(side.outputSet.contains))

  private def belongs(expression: Expression, plan: LogicalPlan): Boolean =
    expression.references.nonEmpty && expression.references.subsetOf(plan.outputSet)
}

private[sparkext] object Sides {
  def of(join: Join): Either[String, Sides] = {
    val leftHint = PipelinedJoinHint.in(join.hint.leftHint)
    val rightHint = PipelinedJoinHint.in(join.hint.rightHint)
    // A hint names the build side; where the join's kind leaves no choice, a hint on the other side asks for the join.
    def buildRight(kind: String) = Sides(kind, join.left, join.right, rightHint.orElse(leftHint))
    def buildLeft(kind: String) = Sides(kind, join.right, join.left, leftHint.orElse(rightHint))
    join.joinType match {
      case _: InnerLike =>
        val left =
          if (leftHint.isDefined != rightHint.isDefined) leftHint.isDefined
          else Estimates.bytes(join.left) < Estimates.bytes(join.right)
        Right(if (left) buildLeft("inner") else buildRight("inner"))
      case LeftOuter => Right(buildRight("left"))
      case RightOuter => Right(buildLeft("left"))
      case LeftSemi => Right(buildRight("semi"))
      case LeftAnti => Right(buildRight("anti"))
      case ExistenceJoin(flag) => Right(buildRight("existence").copy(existence = Some(flag)))
      case FullOuter =>
        val left = leftHint.isDefined || (rightHint.isEmpty && Estimates.bytes(join.left) < Estimates.bytes(join.right))
        Right(if (left) buildLeft("full") else buildRight("full"))
      case other => Left(s"a join of type ${JoinStage.kindOf(other)}")
    }
  }

  /** The key itself: the kernels know that NaN equals NaN and 0.0 equals -0.0. */
  private def plain(key: Expression): Expression = key match {
    case KnownFloatingPointNormalized(NormalizeNaNAndZero(inner)) => inner
    case other => other
  }
}

private object Expressions {

  /** Whether a filter gives the same rows when it is applied later, above further joins. */
  def deferrable(condition: Expression): Either[String, Unit] =
    if (Trees.isDeep(condition)) Left("a condition nested too deeply")
    else if (!condition.deterministic) Left(s"a condition that is not deterministic: ${Wording.of(condition)}")
    else if (condition.exists(_.isInstanceOf[PlanExpression[_]])) Left("a subquery in a join condition")
    else Right(())

  /** Whether an expression has a value for every row, as far as is known: most may raise an error in ANSI mode. */
  def neverFails(expression: Expression): Boolean = !expression.exists(mayFail)

  /** Whether what it takes to compute an expression for every row of its side is no more than a sum out of bounds. */
  def mayBeBound(expression: Expression): Boolean = !expression.exists {
    case _: Add | _: Subtract | _: DateAdd | _: DateSub | _: TimestampAddInterval => false
    case _: If | _: BinaryComparison | _: UnixDate | Abs(_, false) => false
    case product: Multiply => product.dataType != DoubleType
    case other => mayFail(other)
  }

  private def mayFail(expression: Expression): Boolean = expression match {
    case _: Attribute | _: Literal | _: Coalesce | _: Upper | _: Lower => false
    case _: KnownFloatingPointNormalized | _: NormalizeNaNAndZero => false
    case cast: Cast => !Cast.canUpCast(cast.child.dataType, cast.dataType)
    case _ => true
  }
}
