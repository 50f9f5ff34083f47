package org.apache.spark.sql.sparkext

import java.util.Locale

import scala.collection.mutable

import org.apache.spark.sql.catalyst.analysis.{UnresolvedAttribute, UnresolvedRelation}
import org.apache.spark.sql.catalyst.expressions.{Expression, StringLiteral}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule

/** Marks a build side. Spark's join strategies are a closed set, so this hint carries none of them: a join that is declined
  * is planned as if unhinted.
  */
class PipelinedJoinHint extends HintInfo {
  override def merge(other: HintInfo, errors: HintErrorHandler): HintInfo = this
  override def canEqual(other: Any): Boolean = other.isInstanceOf[PipelinedJoinHint]
  override def equals(other: Any): Boolean = canEqual(other)
  override def hashCode: Int = classOf[PipelinedJoinHint].hashCode
  override def toString: String = "(strategy=pipelined_join)"
}

object PipelinedJoinHint {
  val Name = "PIPELINED_JOIN"

  def on(hint: Option[HintInfo]): Boolean = hint.exists(_.isInstanceOf[PipelinedJoinHint])
}

/** Resolves `df.hint("pipelined_join")`, and `PIPELINED_JOIN(a, b)` in SQL onto the relations a and b below it, by the rules
  * of Spark's own join hints: names match by their tail, and subqueries and views are not looked into.
  */
object ResolvePipelinedJoinHint extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case UnresolvedHint(name, parameters, child) if name.toUpperCase(Locale.ROOT) == PipelinedJoinHint.Name =>
      if (parameters.isEmpty) ResolvedHint(child, new PipelinedJoinHint)
      else {
        val wanted = parameters.map(relationName).toSet
        val found = mutable.Set.empty[Seq[String]]
        val marked = mark(child, wanted, found)
        conf.hintErrorHandler.hintRelationsNotFound(name, parameters, wanted -- found)
        marked
      }
  }

  private def relationName(parameter: Any): Seq[String] = parameter match {
    case StringLiteral(name) => UnresolvedAttribute.parseAttributeName(name)
    case attribute: UnresolvedAttribute => attribute.nameParts
    case other: Expression =>
      throw new IllegalArgumentException(s"${PipelinedJoinHint.Name} names relations, got ${other.sql}")
    case other => throw new IllegalArgumentException(s"${PipelinedJoinHint.Name} names relations, got $other")
  }

  private def mark(plan: LogicalPlan, wanted: Set[Seq[String]], found: mutable.Set[Seq[String]]): LogicalPlan = {
    def isWanted(name: Seq[String]): Boolean = {
      val matching = wanted.filter { asked =>
        asked.length <= name.length &&
        asked.zip(name.takeRight(asked.length)).forall { case (one, other) => conf.resolver(one, other) }
      }
      found ++= matching
      matching.nonEmpty
    }
    def isHere(relation: LogicalPlan): Boolean = relation match {
      case relation: UnresolvedRelation => isWanted(relation.multipartIdentifier)
      case alias: SubqueryAlias => isWanted(alias.identifier.qualifier :+ alias.identifier.name)
      case _ => false
    }
    plan match {
      case ResolvedHint(relation, _) if isHere(relation) => ResolvedHint(relation, new PipelinedJoinHint)
      case relation if isHere(relation) => ResolvedHint(relation, new PipelinedJoinHint)
      case _: ResolvedHint | _: View | _: UnresolvedWith | _: SubqueryAlias => plan
      case _ => plan.mapChildren(mark(_, wanted, found))
    }
  }
}
