package org.apache.spark.sql.sparkext.expressions

import scala.annotation.tailrec
import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.{And, Expression, InSet, Or}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan, Project}
import org.apache.spark.sql.catalyst.trees.TreeNode
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons}

/** Traverses trees without recursion. Recursive code in this extension first checks how deep a tree is, because it
  * shares the stack with its callers.
  */
private[sparkext] object Trees {

  /** The largest depths of expressions and plans that are processed. Spark itself overflows its stack on trees that are
    * not much deeper.
    */
  private val DeepestExpression = 250
  private val DeepestPlan = 1000

  /** Whether a tree has more than `levels` levels. */
  private def isDeeper[T <: TreeNode[T]](root: T, levels: Int): Boolean = {
    var level: Seq[T] = Seq(root)
    var depth = 0
    while (level.nonEmpty && depth < levels) {
      level = level.flatMap(_.children)
      depth += 1
    }
    level.nonEmpty
  }

  /** Whether recursive code may process a plan, or the reason why not. */
  def check(plan: LogicalPlan): Either[String, Unit] =
    Reasons.check(!isDeeper(plan, DeepestPlan), Reason("PLAN_TOO_DEEP"))

  /** The operator below those that only filter and compute its rows. */
  @tailrec
  def source(plan: LogicalPlan): LogicalPlan = plan match {
    case Project(_, child) => source(child)
    case Filter(_, child) => source(child)
    case other => other
  }

  def isDeep(expression: Expression): Boolean = isDeeper(expression, DeepestExpression)

  /** Whether the tree of `root`, with the children that `below` returns, has more than `nodes` nodes. */
  def isLarger(root: Expression, nodes: Int)(below: Expression => Seq[Expression]): Boolean = {
    val rest = mutable.Stack(root)
    var count = 0
    while (rest.nonEmpty && count <= nodes) {
      rest.pushAll(below(rest.pop()))
      count += 1
    }
    count > nodes
  }

  /** The operands of an AND, however it is nested, from left to right. */
  def conjuncts(condition: Expression): Seq[Expression] = parts(condition) {
    case And(left, right) => Some((left, right))
    case _ => None
  }

  /** The operands of an OR, likewise. */
  def disjuncts(condition: Expression): Seq[Expression] = parts(condition) {
    case Or(left, right) => Some((left, right))
    case _ => None
  }

  private def parts(condition: Expression)(split: Expression => Option[(Expression, Expression)]): Seq[Expression] = {
    val found = mutable.ArrayBuffer.empty[Expression]
    val rest = mutable.Stack(condition)
    while (rest.nonEmpty) {
      val next = rest.pop()
      split(next) match {
        case Some((left, right)) => rest.push(right, left)
        case None => found += next
      }
    }
    found.toSeq
  }
}

/** Texts of expressions for reasons and plans. */
private[sparkext] object Wording {
  private val MostParts = 200

  /** The SQL of an expression, if it has any and is not too long. */
  def of(expression: Expression): String =
    if (isLong(expression)) s"${expression.prettyName} of more than $MostParts parts"
    else
      try expression.sql
      catch { case NonFatal(_) => expression.prettyName }

  private def isLong(expression: Expression): Boolean =
    Trees.isLarger(expression, MostParts)(_.children) || expression.exists {
      case InSet(_, values) => values.size > MostParts
      case _ => false
    }
}
