"""Random formulas over columns of both sides of a join, and the equivalent SQL.

Integers are taken modulo a thousand first, to avoid overflows, which engines handle differently.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from sparkext.plans.expressions.expression import COMPARISONS, Expression, condition, literal
from sparkext.plans.expressions.key_types import KeyType

_DEPTH = 3
_LONG, _DOUBLE = KeyType("int64"), KeyType("float64")
_SQL_TYPES = {_LONG: "BIGINT", _DOUBLE: "DOUBLE"}
_LITERALS = {_LONG: ("0", "1", "-3", "7", "500", None), _DOUBLE: ("0.0", "-1.5", "2.0", "1e3", None)}
_OPERATORS = {"<=>": "IS NOT DISTINCT FROM", "and": "AND", "or": "OR"}


class FormulaMaker:
    """Draws formulas that read both sides, given the columns of each side as nodes."""

    def __init__(self, generator: random.Random, left: Sequence[Expression], right: Sequence[Expression]) -> None:
        self._r = generator
        self._sides = (left, right)

    def make(self) -> Expression:
        """Return a boolean formula."""
        kind = _DOUBLE if any(self._is_float(node) for side in self._sides for node in side) else _LONG
        sides = [self._combined(kind, self._column(kind, side)) for side in self._sides]
        formula = condition(self._r.choice(COMPARISONS), *self._r.sample(sides, 2))
        if self._r.random() < 0.5:
            formula = condition(self._r.choice(("and", "or")), formula, self._boolean(kind, _DEPTH))
        return condition("not", formula) if self._r.random() < 0.2 else formula

    @staticmethod
    def _is_float(node: Expression) -> bool:
        return node.number.startswith("float")

    def _column(self, kind: KeyType, side: Sequence[Expression]) -> Expression:
        column = Expression("cast", kind, (self._r.choice(side),))
        if kind == _DOUBLE:
            return column
        return Expression("%", kind, (column, literal("1000", kind)))

    def _combined(self, kind: KeyType, node: Expression) -> Expression:
        """Return a number that is computed from this one."""
        way = self._r.randrange(6)
        if way == 0:
            return Expression(self._r.choice(("+", "-", "*")), kind, (node, self._number(kind, 1)))
        if way == 1:
            return Expression(self._r.choice(("abs", "negate")), kind, (node,))
        if way == 2:
            return Expression(self._r.choice(("coalesce", "least", "greatest")), kind, (node, self._number(kind, 1)))
        if way == 3:
            return Expression("if", kind, (self._boolean(kind, 1), node, self._number(kind, 1)))
        return node

    def _number(self, kind: KeyType, depth: int) -> Expression:
        if self._r.random() < 0.4:
            return literal(self._r.choice(_LITERALS[kind]), kind)
        column = self._column(kind, self._r.choice(self._sides))
        return self._combined(kind, column) if depth > 1 else column

    def _boolean(self, kind: KeyType, depth: int) -> Expression:
        way = self._r.randrange(5) if depth > 1 else self._r.randrange(2)
        if way == 0:
            return condition("is_null", self._number(kind, depth))
        if way == 1:
            return condition(self._r.choice(COMPARISONS), self._number(kind, depth), self._number(kind, depth))
        if way == 2:
            return condition("not", self._boolean(kind, depth - 1))
        parts = (self._boolean(kind, depth - 1), self._boolean(kind, depth - 1))
        return condition(self._r.choice(("and", "or")), *parts)


def formula_sql(node: Expression, name: Callable[[Expression], str]) -> str:
    """Return a formula as SQL that Spark and DuckDB share; `name` returns the name of a column."""
    if node.op == "column":
        return name(node)
    if node.op == "literal":
        return f"CAST({'NULL' if node.text is None else node.text} AS {_SQL_TYPES[node.type]})"
    parts = [formula_sql(argument, name) for argument in node.args]
    if node.op == "cast":
        return f"CAST({parts[0]} AS {_SQL_TYPES[node.type]})"
    if node.op == "if":
        return f"CASE WHEN {parts[0]} THEN {parts[1]} ELSE {parts[2]} END"
    if node.op in ("abs", "coalesce", "least", "greatest"):
        return f"{node.op}({', '.join(parts)})"
    if node.op == "is_null":
        return f"({parts[0]} IS NULL)"
    if node.op == "not":
        return f"(NOT {parts[0]})"
    if node.op == "negate":
        return f"(-({parts[0]}))"
    return f"({f' {_OPERATORS.get(node.op, node.op)} '.join(parts)})"


def with_columns(node: Expression, place: Callable[[Expression], Expression]) -> Expression:
    """Return the formula with every column replaced."""
    if node.op == "column":
        return place(node)
    arguments = tuple(with_columns(argument, place) for argument in node.args)
    return Expression(node.op, node.type, arguments, node.checked, text=node.text)
