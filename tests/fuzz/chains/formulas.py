"""Random formulas over columns of both sides of a join, and the SQL that says the same.

Integers are taken modulo a thousand first, so that nothing overflows, where engines differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from sparkext.plans.formula import Formula
from sparkext.plans.predicate import COMPARISONS

_DEPTH = 3
_SQL_TYPES = {"int64": "BIGINT", "float64": "DOUBLE"}
_LITERALS = {"int64": ("0", "1", "-3", "7", "500", None), "float64": ("0.0", "-1.5", "2.0", "1e3", None)}
_OPERATORS = {"<=>": "IS NOT DISTINCT FROM", "and": "AND", "or": "OR"}


class FormulaMaker:
    """Draws formulas that look at both sides at least once, given the columns of either as nodes."""

    def __init__(self, generator: random.Random, left: Sequence[Formula], right: Sequence[Formula]) -> None:
        self._r = generator
        self._sides = (left, right)

    def make(self) -> Formula:
        """Return a boolean formula."""
        kind = "float64" if any(self._is_float(node) for side in self._sides for node in side) else "int64"
        sides = [self._combined(kind, self._column(kind, side)) for side in self._sides]
        formula = Formula(self._r.choice(COMPARISONS), "bool", tuple(self._r.sample(sides, 2)))
        if self._r.random() < 0.5:
            formula = Formula(self._r.choice(("and", "or")), "bool", (formula, self._boolean(kind, _DEPTH)))
        return Formula("not", "bool", (formula,)) if self._r.random() < 0.2 else formula

    @staticmethod
    def _is_float(node: Formula) -> bool:
        return node.type.startswith("float")

    def _column(self, kind: str, side: Sequence[Formula]) -> Formula:
        column = Formula("cast", kind, (self._r.choice(side),))
        if kind == "float64":
            return column
        return Formula("%", kind, (column, Formula("literal", kind, text="1000")))

    def _combined(self, kind: str, node: Formula) -> Formula:
        """Return a number made of this one."""
        way = self._r.randrange(6)
        if way == 0:
            return Formula(self._r.choice(("+", "-", "*")), kind, (node, self._number(kind, 1)))
        if way == 1:
            return Formula(self._r.choice(("abs", "negate")), kind, (node,))
        if way == 2:
            return Formula(self._r.choice(("coalesce", "least", "greatest")), kind, (node, self._number(kind, 1)))
        if way == 3:
            return Formula("if", kind, (self._boolean(kind, 1), node, self._number(kind, 1)))
        return node

    def _number(self, kind: str, depth: int) -> Formula:
        if self._r.random() < 0.4:
            return Formula("literal", kind, text=self._r.choice(_LITERALS[kind]))
        column = self._column(kind, self._r.choice(self._sides))
        return self._combined(kind, column) if depth > 1 else column

    def _boolean(self, kind: str, depth: int) -> Formula:
        way = self._r.randrange(5) if depth > 1 else self._r.randrange(2)
        if way == 0:
            return Formula("is_null", "bool", (self._number(kind, depth),))
        if way == 1:
            numbers = (self._number(kind, depth), self._number(kind, depth))
            return Formula(self._r.choice(COMPARISONS), "bool", numbers)
        if way == 2:
            return Formula("not", "bool", (self._boolean(kind, depth - 1),))
        parts = (self._boolean(kind, depth - 1), self._boolean(kind, depth - 1))
        return Formula(self._r.choice(("and", "or")), "bool", parts)


def formula_sql(node: Formula, name: Callable[[Formula], str]) -> str:
    """Return a formula in words that Spark and DuckDB share; `name` names columns."""
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


def with_columns(node: Formula, place: Callable[[Formula], Formula]) -> Formula:
    """Return the same formula with every column replaced."""
    if node.op == "column":
        return place(node)
    arguments = tuple(with_columns(argument, place) for argument in node.args)
    return Formula(node.op, node.type, arguments, node.checked, text=node.text)
