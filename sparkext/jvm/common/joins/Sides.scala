package org.apache.spark.sql.sparkext.joins

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.sparkext.expressions.Comparison
import org.apache.spark.sql.sparkext.planning.PipelinedJoinHint
import org.apache.spark.sql.sparkext.protocol.Reason

/** Which side of a join streams and which is indexed. */
private[sparkext] case class Sides(
    kind: String,
    probe: LogicalPlan,
    build: LogicalPlan,
    hint: Option[PipelinedJoinHint],
    existence: Option[Attribute] = None) {

  /** The comparison with the probe side's value first, if it compares the two sides. */
  def comparison(operator: String, left: Expression, right: Expression): Option[StageComparison] =
    if (areSides(left, right)) Some(StageComparison(left, operator, right))
    else if (areSides(right, left)) Some(StageComparison(right, Comparison.mirrored(operator), left))
    else None

  /** Whether `one` belongs to the probe side, and `other` to the build side. */
  def areSides(one: Expression, other: Expression): Boolean = belongs(one, probe) && belongs(other, build)

  /** Whether some columns belong to each side. */
  def isAcross(columns: AttributeSet): Boolean =
    Seq(probe, build).forall(side => columns.exists(side.outputSet.contains))

  private def belongs(expression: Expression, plan: LogicalPlan): Boolean =
    expression.references.nonEmpty && expression.references.subsetOf(plan.outputSet)
}

private[sparkext] object Sides {
  def of(join: Join): Either[String, Sides] = {
    val leftHint = PipelinedJoinHint.in(join.hint.leftHint)
    val rightHint = PipelinedJoinHint.in(join.hint.rightHint)
    // A hint names the build side. If the join type leaves no choice, a hint on the other side requests the join as
    // well.
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
      case other => Left(Reason("JOIN_TYPE", JoinStage.kindOf(other)))
    }
  }
}
