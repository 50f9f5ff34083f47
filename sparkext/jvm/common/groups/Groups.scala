package org.apache.spark.sql.sparkext.groups

import org.json4s.JsonAST.{JArray, JBool, JNull, JObject, JValue}
import org.json4s.JsonDSL._

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.expressions.aggregate._
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec
import org.apache.spark.sql.sparkext.expressions.{
  Arithmetic,
  Expressions,
  Failing,
  PairCondition,
  Wording,
  WorkerEvaluator
}
import org.apache.spark.sql.sparkext.joins.{ColumnRef, KeyTypes}
import org.apache.spark.sql.sparkext.protocol.{Reason, Reasons}
import org.apache.spark.sql.types._

/** One aggregate function, by its name in Python's `plans/pipeline/aggregates.py`. */
case class GroupCall(
    function: String,
    argument: Option[Expression],
    checked: Boolean = false,
    ignoreNulls: Boolean = false) {
  def described: String =
    s"$function(${argument.map(Wording.of).getOrElse("*")}${if (ignoreNulls) ", true" else ""})"
}

/** Groups by `keys`, with the buffers of `calls` for each group. */
case class Grouping(keys: Seq[Expression], calls: Seq[GroupCall]) {
  def expressions: Seq[Expression] = keys ++ calls.flatMap(_.argument)

  def map(change: Expression => Expression): Grouping =
    Grouping(keys.map(change), calls.map(call => call.copy(argument = call.argument.map(change))))

  def describedKeys: String = keys.map {
    case Literal(null, _) => "NULL"
    case key => Wording.of(key)
  }.mkString("[", ", ", "]")

  /** Python's `Aggregation`, or the part that workers do not compute. */
  def spec(place: Attribute => ColumnRef): Either[String, JValue] = {
    def written(expression: Expression): Either[String, JObject] = WorkerEvaluator.Arrow.of(expression, place)
      .left.map(part => Reason("EXPRESSION_OF_SPARK", part))
    for {
      keys <- Reasons.all(keys.map(written))
      calls <- Reasons.all(calls.map { call =>
        for (argument <- call.argument.map(written).getOrElse(Right(JNull)))
          yield ("function" -> call.function) ~ ("argument" -> argument) ~ ("checked" -> call.checked) ~ ("ignore_nulls" -> call.ignoreNulls)
      })
    } yield ("keys" -> keys) ~ ("calls" -> calls)
  }
}

/** The groupings of a partial aggregate of Spark's. There is one, or several if Spark expands each row several times,
  * with other expressions for the same keys and arguments.
  *
  * `partial` is that aggregate. Workers emit the same rows, except that a group may be emitted more than once.
  */
case class Groups(partial: BaseAggregateExec, groupings: Seq[Grouping]) {

  /** The expressions that are computed for each row, in Python's order. */
  def expressions: Seq[Expression] = groupings.flatMap(_.expressions)

  /** Whether each row is expanded to several rows, which are grouped. */
  def isExpanded: Boolean = groupings.length > 1

  def described: String = {
    val calls = groupings.flatMap(_.calls.map(_.described)).distinct
    s"${groupings.map(_.describedKeys).mkString("; ")} of ${calls.mkString("[", ", ", "]")}"
  }

  /** Python's `Aggregation`s, or the part that workers do not compute. */
  def spec(place: Attribute => ColumnRef): Either[String, JArray] =
    Reasons.all(groupings.map(_.spec(place))).map(written => JArray(written.toList))
}

object Groups {

  /** The grouping of `partial`, in terms of its child's columns; or the reason why workers do not compute it. */
  def of(partial: BaseAggregateExec): Either[String, Grouping] = for {
    keys <- Reasons.all(partial.groupingExpressions.map(key))
    calls <- Reasons.all(partial.aggregateExpressions.map(call))
  } yield Grouping(keys, calls)

  private def key(named: NamedExpression): Either[String, Expression] = {
    val found = Expressions.unnormalized(Expressions.unnamed(named)) // of equal values, workers emit any
    if (KeyTypes.name(found.dataType).isDefined) Right(found)
    else Left(Reason("GROUP_TYPE", found.dataType.simpleString, Wording.of(found)))
  }

  private def call(aggregate: AggregateExpression): Either[String, GroupCall] = {
    def made(function: String, argument: Expression, checked: Boolean = false): Either[String, GroupCall] =
      Right(GroupCall(function, Some(filtered(argument, aggregate.filter)), checked))
    // If nulls count, the nulls in place of rows that the filter drops would count, too.
    def chosen(function: String, argument: Expression, ignoresNulls: Boolean): Either[String, GroupCall] =
      if (KeyTypes.name(argument.dataType).isEmpty || (aggregate.filter.isDefined && !ignoresNulls)) unknown
      else Right(GroupCall(function, Some(filtered(argument, aggregate.filter)), ignoreNulls = ignoresNulls))
    lazy val unknown = Left(Reason("AGGREGATE_OF_SPARK", Wording.of(aggregate.aggregateFunction)))
    if (aggregate.mode != Partial) unknown
    else aggregate.aggregateFunction match {
      case Count(values) if values.forall(!_.nullable) && aggregate.filter.isEmpty => Right(GroupCall("count", None))
      case Count(values) if values.forall(!_.nullable) => made("count", Literal.TrueLiteral)
      case Count(Seq(value)) => made("count", value)
      case sum: Sum if isNumber(sum.child.dataType) && !Arithmetic.isTry(sum) =>
        val checked = Arithmetic.isAnsi(sum) && sum.child.dataType.isInstanceOf[IntegralType]
        made("sum", sum.child, checked)
      case average: Average if isNumber(average.child.dataType) && average.evalMode != EvalMode.TRY =>
        made("avg", average.child)
      case Min(value) if KeyTypes.isOrdered(value.dataType) => made("min", value)
      case Max(value) if KeyTypes.isOrdered(value.dataType) => made("max", value)
      case moments: CentralMomentAgg =>
        Moments.get(moments.getClass.getSimpleName).map(made(_, moments.child)).getOrElse(unknown)
      case First(value, ignoresNulls) => chosen("first", value, ignoresNulls)
      case Last(value, ignoresNulls) => chosen("last", value, ignoresNulls)
      case BitAndAgg(value) => made("bit_and", value)
      case BitOrAgg(value) => made("bit_or", value)
      case BitXorAgg(value) => made("bit_xor", value)
      case _ => unknown
    }
  }

  /** The argument, with null in place of the values that the filter drops: aggregate functions ignore nulls, unless
    * they are set not to.
    */
  private def filtered(argument: Expression, filter: Option[Expression]): Expression =
    Failing.inTurn(filter.toSeq).map(If(_, argument, Literal(null, argument.dataType))).getOrElse(argument)

  private val Moments = Map(
    "StddevSamp" -> "stddev_samp",
    "StddevPop" -> "stddev_pop",
    "VarianceSamp" -> "var_samp",
    "VariancePop" -> "var_pop")

  private def isNumber(dataType: DataType): Boolean = dataType match {
    case decimal: DecimalType => decimal.scale >= 0
    case _: NumericType => true
    case _ => false
  }
}

/** A [[Groups]] with the positions of its columns: `aggregations` are Python's `Aggregation`s, `formulas` the
  * expressions that may fail, and `partial` is Spark's aggregate.
  */
case class PlannedGroups(
    aggregations: JArray,
    formulas: Seq[Option[PairCondition]],
    output: Seq[Attribute],
    described: String,
    isExpanded: Boolean,
    @transient partial: BaseAggregateExec) {

  /** Python's `Aggregation`s. `whole`: whether each group is emitted once, aggregated over all of its rows. */
  def spec(whole: Boolean): JValue = JArray(aggregations.arr.map(_.merge(JObject("whole" -> JBool(whole)))))
}
