"""Random aggregate functions whose value does not depend on the order of rows."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.fuzz.expressions import ExpressionMaker
from tests.fuzz.sql import Expr
from tests.fuzz.types import ABOUT, EXACT

_COUNTED = (*EXACT, "float")
_MOMENTS = ("stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp")
_WAYS = {"count": 5, "sum": 5, "avg": 3, "ends": 6, "distinct": 2, "bits": 2, "test": 2, "moments": 1, "other": 0.25}
"""Kinds of calls with their frequencies; `other` are functions that workers do not compute."""


class AggregateMaker:
    """Draws calls over expressions of `maker`, for one query. `extreme` and `reckless`: see `ExpressionMaker`."""

    def __init__(self, r: random.Random, maker: ExpressionMaker, extreme: bool, reckless: bool) -> None:
        self._r = r
        self._maker = maker
        self._is_extreme = extreme
        self._reckless = reckless
        self._made_distinct: Expr | None = None

    def call(self) -> Expr:
        """Return an aggregate call."""
        way = self._r.choices(list(_WAYS), list(_WAYS.values()))[0]
        made: Expr = getattr(self, f"_{way}")()
        return made

    def call_of(self, family: str) -> Expr:
        """Return an aggregate whose value is of this family, which is one of `EXACT`."""
        r = self._r
        if family == "int" and r.random() < 0.4:
            return self._count()
        if family in ("int", "decimal") and r.random() < 0.5:
            return self._sum(family)
        if family == "bool" and r.random() < 0.5:
            return self._test()
        return self._ends(family)

    def _value(self, family: str) -> Expr:
        return self._maker.value(family, self._r.choice((0, 0, 1, 2)))

    def _family(self, among: Sequence[str]) -> str:
        return self._maker.some_family(among)

    def _filtered(self, call: Expr) -> Expr:
        """Return the call, sometimes with a FILTER."""
        if self._r.random() >= 0.2:
            return call
        return Expr(f"{call.text} FILTER (WHERE {{}})", call.family, (*call.args, self._maker.predicate(1)))

    def _count(self) -> Expr:
        r = self._r
        way = r.random()
        if way < 0.4:
            return self._filtered(Expr("count({})", "int", (Expr("*", ""),)))
        if way < 0.5:
            several = (self._value(self._family(EXACT)), self._value(self._family(EXACT)))
            return self._filtered(Expr("count({}, {})", "int", several))
        if way < 0.6:
            return Expr("count_if({})", "int", (self._maker.predicate(1),))
        return self._filtered(Expr("count({})", "int", (self._value(self._family(_COUNTED)),)))

    def _addend(self, family: str) -> Expr:
        """Return a number of one sign, so that its sums overflow in every order of rows or in none."""
        value = self._value(family)
        if family == "float" and self._is_extreme:
            return Expr("({} % 1000)", family, (value,))
        if family == "float" or not (self._is_extreme or self._reckless):
            return value
        if family == "int" and not self._reckless:
            return Expr("({} % 1000)", family, (value,))
        test = Expr(f"({{}} {self._r.choice(('>', '<'))} 0)", "bool", (value,))
        return Expr("CASE WHEN {} THEN {} END", family, (test, value))

    def _sum(self, family: str = "") -> Expr:
        family = family or self._family(("int", "decimal", "float"))
        return self._filtered(Expr("sum({})", ABOUT if family == "float" else family, (self._addend(family),)))

    def _avg(self) -> Expr:
        family = self._family(("int", "decimal", "float"))
        return self._filtered(Expr("avg({})", family if family == "decimal" else ABOUT, (self._addend(family),)))

    def _ends(self, family: str = "") -> Expr:
        """Return a minimum or maximum; for floats, one that is not zero, because 0.0 equals -0.0."""
        family = family or self._family(_COUNTED)
        value = self._value(family)
        if family == "float":
            value = Expr("nullif({}, 0)", family, (value,))
        return self._filtered(Expr(self._r.choice(("min({})", "max({})")), family, (value,)))

    def _distinct(self) -> Expr:
        """Return a DISTINCT call. Most calls of a query have the same argument: Spark computes them in parts."""
        r = self._r
        if self._made_distinct is None or r.random() < 0.1:
            self._made_distinct = self._value(self._family(_COUNTED))
        of = self._made_distinct
        if of.family in ("int", "decimal") and not (self._reckless or self._is_extreme) and r.random() < 0.5:
            return Expr(r.choice(("sum(DISTINCT {})", "max(DISTINCT {})")), of.family, (of,))
        if r.random() < 0.15:
            return Expr("count(DISTINCT {}, {})", "int", (of, self._value(self._family(EXACT))))
        return Expr("count(DISTINCT {})", "int", (of,))

    def _bits(self) -> Expr:
        name = self._r.choice(("bit_and", "bit_or", "bit_xor"))
        return self._filtered(Expr(f"{name}({{}})", "int", (self._value("int"),)))

    def _test(self) -> Expr:
        name = self._r.choice(("bool_and", "bool_or", "every", "any"))
        return self._filtered(Expr(f"{name}({{}})", "bool", (self._maker.predicate(1),)))

    def _moments(self) -> Expr:
        family = self._family(("int", "decimal", "float"))
        value = self._value(family)
        if self._is_extreme:
            value = Expr("({} % 1000)", family, (value,))
        return self._filtered(Expr(f"{self._r.choice(_MOMENTS)}({{}})", ABOUT, (value,)))

    def _other(self) -> Expr:
        texts = ("size(collect_set({}))", "approx_count_distinct({})", "count(try_add({}, 1))")
        return Expr(self._r.choice(texts), "int", (self._value("int"),))
