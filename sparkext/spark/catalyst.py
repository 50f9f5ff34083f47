"""Joins on Columns, analysed by Catalyst, in classic sessions of Spark 4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparkext.spark.jvm import access_class

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class AnalysedJoin:
    """The two sides of an inner join, and its condition, resolved to attributes of the sides.

    Expressions are Catalyst's own, so Spark itself resolves names, types, casts and functions such as `between`.
    """

    def __init__(self, left: DataFrame, right: DataFrame, condition: Column) -> None:
        """Analyse the join with Spark.

        Raises
        ------
        pyspark.sql.utils.AnalysisException
            Spark refuses the condition.
        """
        self._session = left.sparkSession
        analysed = left.join(right, condition)._jdf.queryExecution().analyzed()
        plain = self._class("catalyst.optimizer.ReplaceExpressions").apply(analysed)
        plain = self._class("catalyst.optimizer.RewriteWithExpression").apply(plain)
        # If the rewrite computes a column below the join, it puts a projection above it: use the analysed condition.
        join = plain if name_of(plain) == "Join" else analysed
        plans = (join.left(), join.right())
        self.sides = tuple(self._frame(plan) for plan in plans)
        """The DataFrames of the condition. In a self-join, Spark has given new attributes to the right DataFrame."""
        self.conjuncts = _split_conjuncts(join.condition().get())
        """The expressions that must all be true."""
        self._attributes = [_list_elements(plan.output()) for plan in plans]
        self._ids = [[_id(attribute) for attribute in side] for side in self._attributes]

    def find_sides(self, expression: Any) -> set[int]:
        """Return the sides whose columns an expression reads: a subset of {0, 1}."""
        read = [_id(attribute) for attribute in _list_elements(expression.references().toSeq())]
        return {side for side, ids in enumerate(self._ids) if not set(ids).isdisjoint(read)}

    def position(self, side: int, expression: Any) -> int | None:
        """Return the position of an expression among the columns of a side, None if it is no column."""
        if name_of(expression) != "AttributeReference":
            return None
        return self._ids[side].index(_id(expression))

    def column(self, expression: Any) -> Column:
        """Return an expression of one side as a Column for the DataFrame of that side."""
        from pyspark.sql import Column

        return Column(self._class("classic.ExpressionUtils").column(expression))

    def where(self, pairs: DataFrame, conjuncts: Sequence[Any]) -> DataFrame:
        """Return the pairs that satisfy these conjuncts. `pairs` has all columns of the left and the right side."""
        if not conjuncts:
            return pairs
        plan = pairs._jdf.queryExecution().analyzed()
        nothing, none = self._scala([]), access_class(self._session._jvm, "scala.Option").empty()
        alias = self._class("catalyst.expressions.Alias")
        attributes = [attribute for side in self._attributes for attribute in side]
        renumbered = [
            alias(column, column.name(), attribute.exprId(), nothing, none, nothing)
            for column, attribute in zip(_list_elements(plan.output()), attributes, strict=True)
        ]
        plan = self._class("catalyst.plans.logical.Project")(self._scala(renumbered), plan)
        for conjunct in conjuncts:
            plan = self._class("catalyst.plans.logical.Filter")(conjunct, plan)
        return self._frame(plan)

    def _class(self, name: str) -> Any:
        return access_class(self._session._jvm, f"org.apache.spark.sql.{name}")

    def _scala(self, values: list[Any]) -> Any:
        return access_class(self._session._jvm, "org.apache.spark.api.python.PythonUtils").toSeq(values)

    def _frame(self, plan: Any) -> DataFrame:
        from pyspark.sql import DataFrame

        dataset = self._class("classic.Dataset").ofRows(self._session._jsparkSession, plan)
        return DataFrame(dataset, self._session)


def name_of(node: Any) -> str:
    """Return the class name of an expression or a plan in Catalyst."""
    return str(node.getClass().getSimpleName())


def arguments_of(expression: Any) -> list[Any]:
    """Return the children of an expression."""
    return _list_elements(expression.children())


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _split_conjuncts(condition: Any) -> list[Any]:
    if name_of(condition) != "And":
        return [condition]
    return [conjunct for part in arguments_of(condition) for conjunct in _split_conjuncts(part)]


def _list_elements(values: Any) -> list[Any]:
    return [values.apply(number) for number in range(values.size())]
