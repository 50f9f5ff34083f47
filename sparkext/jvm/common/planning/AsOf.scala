package org.apache.spark.sql.sparkext.planning

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.AS_OF_JOIN
import org.apache.spark.sql.catalyst.util.DateTimeConstants.MICROS_PER_DAY
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sparkext.exec.RuntimeFallback
import org.apache.spark.sql.sparkext.expressions.{Arithmetic, Comparison, Expressions, Failing, Trees, Wording}
import org.apache.spark.sql.sparkext.joins.{Acceptance, Estimates, FileFunctions, JoinStage, Sides, StageComparison}
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons, Redaction, Settings}
import org.apache.spark.sql.types._

/** Selects, among the build rows with equal keys, the one whose `build` is nearest to `probe`, like Python's `AsOf`.
  *
  * `tolerance` is the largest distance, in the units of the type: days, microseconds, unscaled decimals.
  */
case class StageAsOf(probe: Expression, build: Expression, direction: String, exact: Boolean, tolerance: Option[Long])

/** An as-of join that is planned as a pipeline. Spark would rewrite its own node as a subquery for each row.
  *
  * `original` is that node, and `sparks` are its expressions. Rules transform `sparks` like other expressions, so that
  * the node can be restored.
  */
case class PipelinedAsOf(
    left: LogicalPlan,
    right: LogicalPlan,
    joinType: JoinType,
    probeKeys: Seq[Expression],
    buildKeys: Seq[Expression],
    nullSafe: Seq[Boolean],
    probe: Expression,
    build: Expression,
    direction: String,
    exact: Boolean,
    tolerance: Option[Long],
    hint: Option[PipelinedJoinHint],
    sparks: Seq[Expression])(val original: AsOfJoin)
    extends BinaryNode {

  override protected def otherCopyArgs: Seq[AnyRef] = Seq(original)

  override def output: Seq[Attribute] =
    left.output ++ (if (joinType == LeftOuter) right.output.map(_.withNullability(true)) else right.output)

  /** Each row of the left side yields at most one row. */
  override def stats: Statistics = {
    val widening = (left.output ++ right.output).map(_.dataType.defaultSize).sum.toDouble /
      math.max(1, left.output.map(_.dataType.defaultSize).sum)
    Statistics(sizeInBytes = (BigDecimal(left.stats.sizeInBytes) * widening).toBigInt, rowCount = left.stats.rowCount)
  }

  def stage: JoinStage = JoinStage(
    PipelinedAsOf.kind(joinType),
    left,
    right,
    probeKeys.zip(buildKeys).zip(nullSafe).map { case ((one, other), safe) =>
      StageComparison(one, if (safe) Comparison.NullSafe else "=", other)
    },
    Nil,
    Some(StageAsOf(probe, build, direction, exact, tolerance)),
    hint = hint
  )

  override protected def withNewChildrenInternal(newLeft: LogicalPlan, newRight: LogicalPlan): PipelinedAsOf =
    copy(left = newLeft, right = newRight)(original)

  /** Spark's own node for the join, restored. */
  def undone: LogicalPlan = {
    val present = sparks.iterator
    original.mapExpressions(_ => present.next()).withNewChildren(Seq(left, right))
  }
}

object PipelinedAsOf {
  def kind(joinType: JoinType): String = if (joinType == LeftOuter) "left" else "inner"
}

/** Replaces the as-of joins that pipelines can run, before the optimizer rewrites them: those of SQL's `ASOF JOIN`, and
  * of DataFrames. A replaced join is hardly ever returned to Spark, so all requirements are checked here.
  */
class PlanAsOfJoins(session: SparkSession) extends Rule[LogicalPlan] with Logging {
  import Reasons.check

  override def apply(plan: LogicalPlan): LogicalPlan =
    if (plan.containsPattern(AS_OF_JOIN)) Guarded.rule("asof", plan)(takenOver(plan)) else plan

  private def takenOver(plan: LogicalPlan): LogicalPlan = {
    val settings = new Settings(SQLConf.get)
    lazy val below = (plan +: plan.subqueriesAll).flatMap(FileFunctions.joinsBelow)
    if (settings.mode == "off" && settings.unreadableMode.isEmpty) plan
    else plan.transformDownWithSubqueries {
      case join: AsOfJoin if !RuntimeFallback.runs(join) =>
        settings.unreadableMode.toLeft(()).flatMap(_ =>
          Guarded.either("nearness") {
            check(!below.exists(_ eq join), FileFunctions.AboveJoin).flatMap(_ => planned(join, settings))
          }.left.map(settings.explained)) match {
          case Right(ours) => ours
          case Left(why) =>
            val reason = Redaction.redacted(why)
            if (settings.force || settings.mode != "hint" || isHinted(join)) {
              join.setTagValue(Guarded.Declined, reason)
              if (settings.explainFallback) logWarning(s"Spark's own as-of join runs instead of a pipeline: $reason")
            }
            join
        }
    }
  }

  private def planned(join: AsOfJoin, settings: Settings): Either[String, PipelinedAsOf] = {
    val (left, leftHint) = unhinted(join.left)
    val (right, rightHint) = unhinted(join.right)
    val hint = rightHint.orElse(leftHint)
    val sides = Sides(PipelinedAsOf.kind(join.joinType), left, right, hint)
    for {
      _ <- settings.hintedOnly.filterNot(_ => settings.force || hint.isDefined).toLeft(())
      _ <- check(!join.isStreaming, Reason("STREAMING_JOIN"))
      _ <- Trees.check(join)
      _ <- check(!join.expressions.exists(Trees.isDeep), Reason("CONDITION_TOO_DEEP"))
      pair <- nearness(join, sides)
      tolerance <- toleranceOf(join, pair)
      keys <- keysOf(join, sides)
      size = Estimates.bytes(right).toLong
      _ <- check(
        settings.force || hint.isDefined || size <= settings.maxBuildBytes,
        Reason("ASOF_BUILD_SIDE_ESTIMATE", size, settings.maxBuildBytes)
      )
      _ <- JoinStage.untransportable(left.output ++ right.output).toLeft(())
      _ <- Acceptance.files(session.sparkContext)
      _ <- Acceptance.workers
    } yield PipelinedAsOf(
      left,
      right,
      join.joinType,
      keys.map(_.probe),
      keys.map(_.build),
      keys.map(_.nullSafe),
      pair.probe,
      pair.build,
      pair.direction,
      pair.exact,
      // If Spark excludes equal values, it also excludes the end of the interval.
      tolerance.map(units => if (pair.exact) units else units - 1),
      hint,
      join.expressions
    )(join)
  }

  private def isHinted(join: AsOfJoin): Boolean = join.children.exists(unhinted(_)._2.isDefined)

  private def unhinted(plan: LogicalPlan): (LogicalPlan, Option[PipelinedJoinHint]) = plan match {
    case ResolvedHint(child, hint: PipelinedJoinHint) => (child, Some(hint))
    case unary: UnaryNode => // Spark, too, looks for hints through such nodes
      val (below, hint) = unhinted(unary.child)
      (if (hint.isDefined) unary.withNewChildren(Seq(below)) else unary, hint)
    case other => (other, None)
  }

  /** The two values to compare, and the direction of the search, as the form of Spark's conditions implies them. */
  private def nearness(join: AsOfJoin, sides: Sides): Either[String, StageAsOf] = {
    val conditions = Trees.conjuncts(join.asOfCondition)
    val pair = (join.orderExpression, conditions.head) match {
      case (If(GreaterThan(one, other), _, _), first) if first != GreaterThan(one, other) =>
        Some(StageAsOf(one, other, "nearest", !conditions.contains(Not(EqualTo(one, other))), None))
      case (_, GreaterThanOrEqual(one, other)) => Some(StageAsOf(one, other, "backward", exact = true, None))
      case (_, GreaterThan(one, other)) => Some(StageAsOf(one, other, "backward", exact = false, None))
      case (_, LessThanOrEqual(one, other)) => Some(StageAsOf(one, other, "forward", exact = true, None))
      case (_, LessThan(one, other)) => Some(StageAsOf(one, other, "forward", exact = false, None))
      case _ => None
    }
    for {
      found <- pair.filter(pair => sides.areSides(pair.probe, pair.build)).toRight(
        Reason("ASOF_CONDITION", Wording.of(join.asOfCondition)))
      values = Seq(found.probe, found.build)
      _ <- Reasons.all(values.map(Expressions.deferrable))
      _ <- values.find(Failing.may).map(value => Reason("ASOF_VALUE_MAY_FAIL", value.sql)).toLeft(())
      _ <- check(
        found.probe.dataType == found.build.dataType && hasDistance(found.probe.dataType),
        Reason("ASOF_TYPE", found.probe.dataType.simpleString))
      _ <- check(
        !join.orderExpression.exists(mayWrap),
        Reason("ASOF_INTEGERS_WRAP"))
    } yield found
  }

  /** Whether the difference of two distant integers may wrap around to a small one, so that Spark selects a wrong row.
    */
  private def mayWrap(expression: Expression): Boolean = expression match {
    case difference: Subtract =>
      difference.dataType.isInstanceOf[IntegralType] && !Arithmetic.isAnsi(difference)
    case _ => false
  }

  private def hasDistance(dataType: DataType): Boolean = dataType match {
    case _: IntegralType | DateType | TimestampType | TimestampNTZType => true
    case decimal: DecimalType => decimal.precision <= Decimal.MAX_LONG_DIGITS
    case _ => false // floats: with infinities and NaN, Spark's nearest row differs from that of pandas and of pipelines
  }

  private def toleranceOf(join: AsOfJoin, pair: StageAsOf): Either[String, Option[Long]] =
    join.toleranceAssertion match {
      case None => Right(None)
      case Some(GreaterThanOrEqual(tolerance, _)) if tolerance.foldable =>
        units(tolerance, pair, join.asOfCondition).map(Some(_)).toRight(
          Reason("ASOF_TOLERANCE", Wording.of(tolerance), pair.probe.dataType.simpleString))
      case Some(other) => Left(Reason("ASOF_TOLERANCE_NOT_CONSTANT", Wording.of(other)))
    }

  /** A tolerance in units of the type. A day is always 24 hours only in time zones without daylight saving time; the
    * zone is that of `condition`.
    */
  private def units(tolerance: Expression, pair: StageAsOf, condition: Expression): Option[Long] = {
    val value =
      try tolerance.eval()
      catch { case NonFatal(_) => null }
    // Spark subtracts local times or days before it converts them.
    val converted = pair.probe.exists {
      case Cast(child, _, _, _) => child.dataType.isInstanceOf[DatetimeType]
      case _ => false
    }
    val zone =
      condition.collectFirst { case aware: TimeZoneAwareExpression if aware.timeZoneId.isDefined => aware.zoneId }
    (pair.probe.dataType, tolerance.dataType, value) match {
      case (_, _, null) => None
      case (DateType, DayTimeIntervalType(DayTimeIntervalType.DAY, DayTimeIntervalType.DAY), micros: Long) =>
        Some(micros / MICROS_PER_DAY)
      case (DateType, IntegerType, days: Int) => Some(days.toLong)
      case (TimestampType | TimestampNTZType, _: DayTimeIntervalType, micros: Long) if !converted =>
        val steady =
          pair.probe.dataType == TimestampNTZType || micros < MICROS_PER_DAY || zone.exists(_.getRules.isFixedOffset)
        if (steady) Some(micros) else None
      case (_: IntegralType, _: IntegralType, number: Number) => Some(number.longValue)
      case (DecimalType.Fixed(_, scale), _: IntegralType, number: Number) =>
        unscaled(BigDecimal(number.longValue), scale)
      case (DecimalType.Fixed(_, scale), _: DecimalType, number: Decimal) => unscaled(number.toBigDecimal, scale)
      case _ => None
    }
  }

  private def unscaled(number: BigDecimal, scale: Int): Option[Long] = {
    val units = number * BigDecimal(10).pow(scale)
    if (units.isValidLong) Some(units.toLongExact) else None
  }

  private def keysOf(join: AsOfJoin, sides: Sides): Either[String, Seq[StageComparison]] =
    for {
      keys <- Reasons.all(join.condition.toSeq.flatMap(Trees.conjuncts).map { condition =>
        JoinStage.key(condition, sides).toRight(
          Reason("ASOF_NOT_EQUALITY", Wording.of(condition)))
      })
      _ <- keys.flatMap(JoinStage.unsupportedKey).headOption.toLeft(())
    } yield keys
}
