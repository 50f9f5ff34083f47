"""Random expressions over the visible columns."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.sql import Expr
from tests.fuzz.types import ABOUT, BY_FAMILY, EXACT, NUMBERS, quoted_text

_COMPARISONS = ("=", "<=>", "<", "<=", ">", ">=", "<>", "<>")
_COMPARABLE = (*EXACT, "float", "months")
Subquery = Callable[[str], Expr | None]
"""Returns an expression with a subquery, of a family or `predicate`; or None."""

_DEEPEST_PARENTHESES = 12  # Spark's parser needs ten seconds for sixty, and caches its states


class ExpressionMaker:
    """Draws expressions of a family.

    `reckless`: arithmetic may overflow, and divisors may be zero. `subquery`, if given, is called sometimes.
    """

    longest = 4000
    """The largest number of elements of a list, or of conditions in a conjunction."""

    def __init__(
        self,
        r: random.Random,
        columns: Sequence[Expr],
        extreme: bool = False,
        reckless: bool = False,
        subquery: Subquery | None = None,
    ) -> None:
        self._r = r
        self.columns = columns
        self._extreme = extreme
        self._reckless = reckless
        self._subquery = subquery

    def column(self, family: str) -> Expr | None:
        """Return a column of a family, or None."""
        found = [column for column in self.columns if column.family == family]
        return self._r.choice(found) if found else None

    def literal(self, family: str, null_rate: float = 0.04) -> Expr:
        """Return a constant."""
        kind = self._r.choice(BY_FAMILY[family])
        value: Any = None
        if self._r.random() >= null_rate:
            rare = self._extreme and kind.extreme and self._r.random() < 0.1
            value = self._r.choice(kind.extreme if rare else kind.usual)
        return Expr(kind.of(value), family)

    def value(self, family: str, depth: int = 2) -> Expr:
        """Return an expression of a family."""
        r = self._r
        if depth > 0 and r.random() < 0.45:
            if self._subquery is not None and family in EXACT and r.random() < 0.08:
                found = self._subquery(family)
                if found is not None:
                    return found
            made = (
                getattr(self, f"_{family}", self._any)(depth - 1)
                if r.random() < 0.8
                else self._any_of(family, depth - 1)
            )
            if made is not None:
                return made
        column = self.column(family)
        return column if column is not None and r.random() < 0.85 else self.literal(family)

    def some_family(self, among: Sequence[str] = ()) -> str:
        """Return the family of a random column."""
        found = [column.family for column in self.columns if not among or column.family in among]
        return self._r.choice(found) if found else "int"

    # Values

    def _any(self, depth: int) -> Expr | None:
        return None

    def _any_of(self, family: str, depth: int) -> Expr:
        """Return an expression that exists for every family."""
        r = self._r
        way = r.randrange(5)
        if family in ("void", "map", "variant", ABOUT) or way == 0:
            return Expr("coalesce({, })", family, (self.value(family, depth), self.value(family, depth)))
        if way == 1:
            inside = (self.predicate(depth), self.value(family, depth), self.value(family, depth))
            return Expr("CASE WHEN {} THEN {} ELSE {} END", family, inside)
        if way == 2:
            inside = (self.predicate(depth), self.value(family, depth), self.value(family, depth))
            return Expr("if({, })", family, inside)
        if way == 3 and family in _COMPARABLE:
            name = r.choice(("least", "greatest"))
            return Expr(name + "({, })", family, (self.value(family, depth), self.value(family, depth)))
        return Expr("nullif({, })", family, (self.value(family, depth), self.literal(family)))

    def _number(self, depth: int, family: str) -> Expr:
        """Return a number for which arithmetic does not overflow, unless the maker is reckless."""
        value = self.value(family, depth)
        return value if self._reckless or not self._extreme else Expr("({} % 1000)", family, (value,))

    def _divisor(self, depth: int, family: str) -> Expr:
        if self._reckless:
            return self.value(family, depth)
        return Expr("nullif({}, 0)", family, (self.value(family, depth),))

    def _int(self, depth: int) -> Expr:
        r = self._r
        way = r.randrange(14)
        if way < 5:
            operator = r.choice(("+", "+", "-", "*"))
            return Expr(f"({{}} {operator} {{}})", "int", (self._number(depth, "int"), self._number(depth, "int")))
        if way == 5:
            return Expr(
                r.choice(("({} % {})", "({} div {})", "pmod({}, {})")),
                "int",
                (self._number(depth, "int"), self._divisor(depth, "int")),
            )
        if way == 6:
            return Expr(r.choice(("abs({})", "(- {})")), "int", (self._number(depth, "int"),))
        if way == 7:
            return Expr(
                r.choice(("length({})", "octet_length({})", "ascii({})")), "int", (self.value("string", depth),)
            )
        if way == 8:
            return Expr("datediff({}, {})", "int", (self.value("date", depth), self.value("date", depth)))
        if way == 9:
            return Expr(r.choice(("year({})", "dayofmonth({})", "unix_date({})")), "int", (self.value("date", depth),))
        if way == 10:
            return Expr("CAST({} AS bigint)", "int", (self._number(depth, "int"),))
        if way == 11:
            return Expr("CAST({} AS int)", "int", (self.predicate(depth),))
        if way == 12:
            return Expr(
                r.choice(("({} & {})", "({} ^ {})")), "int", (self.value("int", depth), self.value("int", depth))
            )
        return Expr(
            r.choice(("hash({})", "crc32(CAST({} AS string))")), "int", (self.value(self.some_family(EXACT), depth),)
        )

    def _float(self, depth: int) -> Expr:
        r = self._r
        way = r.randrange(6)
        if way < 3:
            operator = r.choice(("+", "-", "*"))
            return Expr(f"({{}} {operator} {{}})", "float", (self.value("float", depth), self.value("float", depth)))
        if way == 3:
            return Expr("({} / {})", "float", (self.value("float", depth), self._divisor(depth, "float")))
        if way == 4:
            return Expr(
                r.choice(("abs({})", "sqrt({})", "(- {})", "floor({})")), "float", (self.value("float", depth),)
            )
        return Expr("CAST({} AS double)", "float", (self.value(r.choice(NUMBERS), depth),))

    def _decimal(self, depth: int) -> Expr:
        r = self._r
        way = r.randrange(6)
        if way < 3 and (self._reckless or not self._extreme):
            operator = r.choice(("+", "-", "*"))
            return Expr(
                f"({{}} {operator} {{}})",
                "decimal",
                (self.value("decimal", depth), self.value(r.choice(("decimal", "int")), depth)),
            )
        if way == 3:
            return Expr("({} / {})", "decimal", (self.value("decimal", depth), self._divisor(depth, "decimal")))
        if way == 4:
            return Expr(r.choice(("abs({})", "(- {})")), "decimal", (self.value("decimal", depth),))
        return Expr("CAST({} AS decimal(25,3))", "decimal", (self.value("int", depth),))

    def _string(self, depth: int) -> Expr:
        r = self._r
        way = r.randrange(6)
        if way == 0:
            return Expr("concat({, })", "string", (self.value("string", depth), self.value("string", depth)))
        if way == 1:
            return Expr("CAST({} AS string)", "string", (self.value(self.some_family(EXACT), depth),))
        if way == 2:
            return Expr("substr({}, 1, 2)", "string", (self.value("string", depth),))
        text = r.choice(("upper({})", "lower({})", "trim({})", "reverse({})", "initcap({})"))
        return Expr(text, "string", (self.value("string", depth),))

    def _date(self, depth: int) -> Expr:
        if self._extreme and not self._reckless:
            return Expr("coalesce({, })", "date", (self.value("date", depth), self.literal("date", 0)))
        text = self._r.choice(("date_add({}, {})", "date_sub({}, {})", "({} + {})"))
        days = Expr("({} % 10)", "int", (self.value("int", depth),)) if self._extreme else self.value("int", 0)
        return Expr(text, "date", (self.value("date", depth), Expr("CAST({} AS int)", "int", (days,))))

    def _timestamp(self, depth: int) -> Expr:
        text = self._r.choice(("({} + INTERVAL '1' HOUR)", "date_trunc('HOUR', {})", "({} - INTERVAL '20' MINUTE)"))
        return Expr(text, "timestamp", (self.value("timestamp", depth),))

    def _ntz(self, depth: int) -> Expr:
        return Expr(
            self._r.choice(("({} + INTERVAL '1' DAY)", "({} - INTERVAL '20' MINUTE)")),
            "ntz",
            (self.value("ntz", depth),),
        )

    def _span(self, depth: int) -> Expr:
        if self._r.random() < 0.5:
            return Expr("({} - {})", "span", (self.value("timestamp", depth), self.value("timestamp", depth)))
        return Expr("({} + {})", "span", (self.value("span", depth), self.value("span", depth)))

    def _bool(self, depth: int) -> Expr:
        return self.predicate(depth)

    def _array(self, depth: int) -> Expr:
        return Expr("array({, })", "array", (self.value("int", depth), self.value("int", depth)))

    def _struct(self, depth: int) -> Expr:
        inside = (Expr("'a'", ""), self.value("int", depth), Expr("'b'", ""), self.value("string", depth))
        return Expr("named_struct({, })", "struct", inside)

    # Predicates

    def predicate(self, depth: int = 2) -> Expr:
        """Return a condition."""
        r = self._r
        if depth > 0 and r.random() < 0.5:
            way = r.randrange(8)
            if way < 2 and self._subquery is not None and r.random() < 0.4:
                found = self._subquery("predicate")
                if found is not None:
                    return found
            if way < 5:
                word = r.choice(("AND", "OR", "OR"))
                several = tuple(self.predicate(depth - 1) for _ in range(r.choice((2, 2, 3))))
                return Expr(f"({{ {word} }})", "bool", several)
            if way < 7:
                return Expr("(NOT {})", "bool", (self.predicate(depth - 1),))
            inside = (self.predicate(depth - 1), self.predicate(depth - 1), self.predicate(depth - 1))
            return Expr("CASE WHEN {} THEN {} ELSE {} END", "bool", inside)
        if r.random() < 0.01:
            return self._deep()
        return self._test(max(depth - 1, 0))

    def _test(self, depth: int) -> Expr:
        r = self._r
        family = self.some_family()
        way = r.randrange(10)
        if way < 4 and family in _COMPARABLE:
            return self.comparison(family, depth)
        if way == 4:
            return Expr(r.choice(("({} IS NULL)", "({} IS NOT NULL)")), "bool", (self.value(family, depth),))
        if way == 5 and family in _COMPARABLE:
            inside = (self.value(family, depth), self.literal(family), self.literal(family))
            return Expr(r.choice(("({} BETWEEN {} AND {})", "({} NOT BETWEEN {} AND {})")), "bool", inside)
        if way == 6 and family in _COMPARABLE:
            return self._in_list(family, depth)
        if way == 7:
            pattern = r.choice(("a%", "%b", "%a%", "a_b", "_", "%", "k%y%", "100\\%", ""))
            return Expr(
                f"({{}} {r.choice(('LIKE', 'LIKE', 'NOT LIKE'))} {quoted_text(pattern)})",
                "bool",
                (self.value("string", depth),),
            )
        if way == 8 and (flag := self.column("bool")) is not None:
            return flag
        return self.comparison("int", depth)

    def comparison(self, family: str, depth: int = 1) -> Expr:
        """Return a comparison of two values of a family, or of numbers of two families."""
        r = self._r
        other = r.choice(NUMBERS) if family in NUMBERS and r.random() < 0.15 else family
        left, right = self.value(family, depth), self.value(other, depth)
        if left == right or (not left.args and left.column is None):
            left = self.column(family) or left
        if left == right:
            right = self.literal(other)
        return Expr(f"({{}} {r.choice(_COMPARISONS)} {{}})", "bool", (left, right))

    def _in_list(self, family: str, depth: int) -> Expr:
        r = self._r
        value = self.value(family, depth)
        word = r.choice(("IN", "IN", "NOT IN"))
        if family in ("int", "string") and r.random() < 0.05:
            count = min(r.choice((20, 300, 4000)), self.longest)
            numbers = (3 * number for number in range(count))
            listed = tuple(Expr(str(n) if family == "int" else quoted_text(f"v{n}"), family) for n in numbers)
        else:
            null_rate = r.choice((0, 0, 0.2))
            listed = tuple(self.literal(family, null_rate) for _ in range(r.choice((1, 2, 3, 12))))
        return Expr(f"({{}} {word} ({{}}))", "bool", (value, Expr("{, }", family, listed)))

    def _deep(self) -> Expr:
        """Return many conditions in one, either in a row or nested."""
        r = self._r
        count = min(r.choice((30, 60, 250)), self.longest)
        word = r.choice(("AND", "OR"))
        if r.random() < 0.5:
            few = [self.comparison("int", 0) for _ in range(5)]
            return Expr(f"({{ {word} }})", "bool", tuple(r.choice(few) for _ in range(count)))
        nested = self.comparison("int", 0)
        for number in range(min(count, 60)):
            one = self.comparison("int", 0)
            if number < _DEEPEST_PARENTHESES:
                text = f"({{ {('AND', 'OR')[number % 2]} }})" if r.random() < 0.8 else "(NOT ({ AND }))"
                nested = Expr(text, "bool", (one, nested))
            else:
                nested = Expr("if({, })", "bool", (one, *r.sample((self.comparison("int", 0), nested), 2)))
        return nested
