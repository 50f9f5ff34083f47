package org.apache.spark.sql.sparkext.planning

import java.util.Locale

import scala.collection.mutable

import org.apache.spark.sql.catalyst.analysis.{UnresolvedAttribute, UnresolvedRelation}
import org.apache.spark.sql.catalyst.expressions.{Expression, StringLiteral}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreePattern.UNRESOLVED_HINT
import org.apache.spark.sql.sparkext.expressions.Wording
import org.apache.spark.sql.sparkext.protocol.{Reason, Settings}

/** Marks a build side. Spark's join strategies are a closed set, so this hint carries none of them: a join that is
  * declined is planned as if unhinted.
  *
  * `algorithm`, `maxBytes` and `partitioned` replace the session's settings for this join.
  */
class PipelinedJoinHint(val algorithm: Option[String], val maxBytes: Option[Long], val partitioned: Option[String])
    extends HintInfo {
  override def merge(other: HintInfo, errors: HintErrorHandler): HintInfo = this
  override def canEqual(other: Any): Boolean = other.isInstanceOf[PipelinedJoinHint]
  override def equals(other: Any): Boolean = other match {
    case hint: PipelinedJoinHint => hint.options == options
    case _ => false
  }
  override def hashCode: Int = options.hashCode
  private def options = (algorithm, maxBytes, partitioned)
  override def toString: String = "(strategy=pipelined_join)"
}

object PipelinedJoinHint {
  val Name = "PIPELINED_JOIN"

  def in(hint: Option[HintInfo]): Option[PipelinedJoinHint] = hint.collect { case hint: PipelinedJoinHint => hint }

  /** The hint with these options, each written `key=value`. */
  def of(options: Seq[(String, String)]): PipelinedJoinHint =
    options.foldLeft(new PipelinedJoinHint(None, None, None)) {
      case (hint, ("algorithm", name)) =>
        new PipelinedJoinHint(Some(Settings.algorithmNamed(name)), hint.maxBytes, hint.partitioned)
      case (hint, ("maxbytes", size)) =>
        new PipelinedJoinHint(hint.algorithm, Some(Settings.bytes(size)), hint.partitioned)
      case (hint, ("partitioned", when)) =>
        new PipelinedJoinHint(hint.algorithm, hint.maxBytes, Some(Settings.partitionedWhen(when)))
      case (_, (key, _)) =>
        throw new RefusedException(Reason("UNKNOWN_HINT_OPTION", Name, key))
    }
}

/** Resolves `df.hint("pipelined_join")`, and `PIPELINED_JOIN(a, b)` in SQL onto the relations a and b below it, by the
  * rules of Spark's own join hints: names match by their tail, and subqueries and views are not searched. String
  * parameters like `'algorithm=hash'` are options.
  */
object ResolvePipelinedJoinHint extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan =
    if (plan.containsPattern(UNRESOLVED_HINT)) Guarded.rule("hints", plan)(resolved(plan)) else plan

  private def resolved(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case UnresolvedHint(name, parameters, child) if name.toUpperCase(Locale.ROOT) == PipelinedJoinHint.Name =>
      val (relations, options) = parameters.partitionMap(parameter => option(parameter).toRight(parameter))
      val hint = PipelinedJoinHint.of(options)
      if (relations.isEmpty) ResolvedHint(child, hint)
      else {
        val wanted = relations.map(relationName).toSet
        val found = mutable.Set.empty[Seq[String]]
        val marked = mark(child, hint, wanted, found)
        conf.hintErrorHandler.hintRelationsNotFound(name, parameters, wanted -- found)
        marked
      }
  }

  private def relationName(parameter: Any): Seq[String] = parameter match {
    case StringLiteral(name) => UnresolvedAttribute.parseAttributeName(name)
    case attribute: UnresolvedAttribute => attribute.nameParts
    case other: Expression =>
      throw new RefusedException(Reason("INVALID_HINT", PipelinedJoinHint.Name, Wording.of(other)))
    case other => throw new RefusedException(Reason("INVALID_HINT", PipelinedJoinHint.Name, other))
  }

  private def option(parameter: Any): Option[(String, String)] = parameter match {
    case StringLiteral(text) if text.contains('=') =>
      val Array(key, value) = text.split("=", 2).map(_.trim)
      Some(key.toLowerCase(Locale.ROOT) -> value)
    case _ => None
  }

  private def mark(
      plan: LogicalPlan,
      hint: PipelinedJoinHint,
      wanted: Set[Seq[String]],
      found: mutable.Set[Seq[String]]): LogicalPlan = {
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
      case ResolvedHint(relation, _) if isHere(relation) => ResolvedHint(relation, hint)
      case relation if isHere(relation) => ResolvedHint(relation, hint)
      case _: ResolvedHint | _: View | _: UnresolvedWith | _: SubqueryAlias => plan
      case _ => plan.mapChildren(mark(_, hint, wanted, found))
    }
  }
}
