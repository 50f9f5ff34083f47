package org.apache.spark.sql.sparkext

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.sql.catalyst.expressions.{And, Expression, InSet, Or}
import org.apache.spark.sql.catalyst.trees.TreeNode

/** Looks at trees without recursion. What is recursive here asks first how deep a tree is: the stack is not ours alone. */
private[sparkext] object Trees {

  /** The deepest expressions and plans that are looked at. Spark itself overflows its stack on not much deeper ones. */
  val DeepestExpression = 250
  val DeepestPlan = 1000

  /** Whether a tree has more levels. */
  def isDeeper[T <: TreeNode[T]](root: T, levels: Int): Boolean = {
    var level: Seq[T] = Seq(root)
    var depth = 0
    while (level.nonEmpty && depth < levels) {
      level = level.flatMap(_.children)
      depth += 1
    }
    level.nonEmpty
  }

  def isDeep(expression: Expression): Boolean = isDeeper(expression, DeepestExpression)

  /** Whether there are more nodes below `root`, and itself, by way of `below`. */
  def isLarger(root: Expression, nodes: Int)(below: Expression => Seq[Expression]): Boolean = {
    val rest = mutable.Stack(root)
    var count = 0
    while (rest.nonEmpty && count <= nodes) {
      rest.pushAll(below(rest.pop()))
      count += 1
    }
    count > nodes
  }

  /** What AND connects, however it is nested, from left to right. */
  def conjuncts(condition: Expression): Seq[Expression] = parts(condition) {
    case And(left, right) => Some((left, right))
    case _ => None
  }

  /** The same of OR. */
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

/** Expressions as reasons and plans name them. */
private[sparkext] object Wording {
  private val MostParts = 200

  /** Its SQL, if it has any and is not endless. */
  def of(expression: Expression): String =
    if (isLong(expression)) s"${expression.prettyName} of more than $MostParts parts"
    else try expression.sql catch { case NonFatal(_) => expression.prettyName }

  private def isLong(expression: Expression): Boolean =
    Trees.isLarger(expression, MostParts)(_.children) || expression.exists {
      case InSet(_, values) => values.size > MostParts
      case _ => false
    }
}
