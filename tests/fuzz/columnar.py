"""Random expressions, most of which workers compute by columns: see `plans.expressions.evaluators.ARROW`."""

from __future__ import annotations

from tests.fuzz.expressions import ExpressionMaker
from tests.fuzz.sql import Expr
from tests.fuzz.types import NUMBERS, quoted_text

_OTHERS = 0.1
"""Share of expressions of the whole grammar. A single one that only Spark evaluates leaves its aggregate to Spark."""
_DATE_FIELDS = ("year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear", "weekofyear")
_UNITS = ("year", "quarter", "month", "week")
_DECIMAL_CASTS = ("decimal(38,10)", "decimal(25,3)", "decimal(38,0)", "decimal(12,1)", "decimal(3,2)", "decimal(1,0)")


class ColumnarMaker(ExpressionMaker):
    """Draws short expressions of a family, because a query repeats them; see `ExpressionMaker`."""

    longest = 40

    def _int(self, depth: int) -> Expr | None:
        r = self._r
        if r.random() < _OTHERS:
            return super()._int(depth)
        way = r.randrange(13)
        if way < 4:
            operator = r.choice(("+", "+", "-", "*"))
            return Expr(f"({{}} {operator} {{}})", "int", (self._number(depth, "int"), self._number(depth, "int")))
        if way == 4:
            text = r.choice(("({} % {})", "({} div {})", "pmod({}, {})"))
            return Expr(text, "int", (self._number(depth, "int"), self._divisor(depth, "int")))
        if way == 5:
            return Expr(r.choice(("abs({})", "(- {})", "(+ {})")), "int", (self._number(depth, "int"),))
        if way == 6:
            return Expr("length({})", "int", (self.value("string", depth),))
        if way == 7:
            return Expr("datediff({}, {})", "int", (self.value("date", depth), self.value("date", depth)))
        if way == 8:
            return Expr(f"{r.choice(_DATE_FIELDS)}({{}})", "int", (self.value("date", depth),))
        if way == 9 and (self._reckless or not self._extreme):
            return Expr(
                f"{r.choice(('round', 'bround'))}({{}}, {r.randrange(-3, 2)})", "int", (self.value("int", depth),)
            )
        if way == 10:
            return Expr("CAST({} AS int)", "int", (self.predicate(depth),))
        if way == 11 and (self._reckless or not self._extreme):
            # A float may be infinite.
            of = "decimal" if not self._reckless else r.choice(("decimal", "float"))
            return Expr(r.choice(("CAST({} AS bigint)", "CAST(floor({}) AS bigint)")), "int", (self.value(of, depth),))
        narrow = r.choice(("bigint", "bigint", "int", "smallint", "tinyint"))
        return Expr(f"CAST({{}} AS {narrow})", "int", (self._number(depth, "int"),))

    def _float(self, depth: int) -> Expr | None:
        r = self._r
        if r.random() < _OTHERS:
            return super()._float(depth)
        way = r.randrange(8)
        if way == 7:
            return Expr("nanvl({}, {})", "float", (self.value("float", depth), self.value("float", depth)))
        if way < 2:
            operator = r.choice(("+", "-", "*"))
            return Expr(f"({{}} {operator} {{}})", "float", (self.value("float", depth), self.value("float", depth)))
        if way < 4:
            operator = r.choice(("/", "/", "%"))
            of = r.choice(("float", "float", "int"))
            parts = (Expr("CAST({} AS double)", "float", (self.value(of, depth),)), self._divisor(depth, "float"))
            return Expr(f"({{}} {operator} {{}})", "float", parts)
        if way == 4:
            return Expr(r.choice(("abs({})", "sqrt({})", "(- {})")), "float", (self.value("float", depth),))
        return Expr("CAST({} AS double)", "float", (self.value(r.choice(NUMBERS), depth),))

    def _decimal(self, depth: int) -> Expr | None:
        r = self._r
        if r.random() < _OTHERS:
            return super()._decimal(depth)
        way = r.randrange(8)
        small = self._reckless or not self._extreme
        if way < 4 and small:
            operator = r.choice(("+", "-", "*", "*"))
            parts = (self.value("decimal", depth), self.value(r.choice(("decimal", "decimal", "int")), depth))
            return Expr(f"({{}} {operator} {{}})", "decimal", parts)
        if way == 4 and small:
            return Expr("({} / {})", "decimal", (self.value("decimal", depth), self._divisor(depth, "decimal")))
        if way == 5:
            return Expr(r.choice(("abs({})", "(- {})")), "decimal", (self.value("decimal", depth),))
        if way == 6 and self._reckless:
            of = self.value(r.choice(("decimal", "decimal", "int")), depth)
            return Expr(f"CAST({{}} AS {r.choice(_DECIMAL_CASTS)})", "decimal", (of,))
        return Expr("CAST({} AS decimal(25,3))", "decimal", (self._number(depth, "int"),))

    def _string(self, depth: int) -> Expr | None:
        r = self._r
        if r.random() < _OTHERS:
            return super()._string(depth)
        way = r.randrange(6)
        if way == 5:
            text = r.choice(("trim({})", "ltrim({})", "rtrim(concat({}, '  '))", "upper({})", "lower({})"))
            return Expr(text, "string", (self.value("string", depth),))
        if way == 0:
            return Expr("concat({, })", "string", (self.value("string", depth), self.value("string", depth)))
        if way == 1:
            parts = (self.value("string", depth), Expr(quoted_text(r.choice(("", "-", "名"))), "string"))
            return Expr("({} || {})", "string", parts)
        if way == 2:
            return Expr(f"left({{}}, {r.choice((0, 1, 3))})", "string", (self.value("string", depth),))
        place, count = r.choice((-40, -2, -1, 0, 1, 1, 2, 3, 28, 100)), r.choice((-1, 0, 1, 1, 2, 5, 2147483647))
        return Expr(f"substring({{}}, {place}, {count})", "string", (self.value("string", depth),))

    def _date(self, depth: int) -> Expr | None:
        r = self._r
        if r.random() < _OTHERS or (self._extreme and not self._reckless):
            return super()._date(depth)
        way = r.randrange(4)
        if way == 0:
            text = r.choice(("last_day({})", f"trunc({{}}, '{r.choice(_UNITS)}')", "({} + INTERVAL '5' MONTH)"))
            return Expr(text, "date", (self.value("date", depth),))
        if way == 1:
            months = Expr("CAST(({} % 100) AS int)", "int", (self.value("int", depth),))
            return Expr("add_months({}, {})", "date", (self.value("date", depth), months))
        if way == 2:
            return Expr("CAST({} AS date)", "date", (self.value("ntz", depth),))
        days = Expr("({} % 1000)", "int", (self.value("int", depth),))
        text = r.choice(("date_add({}, {})", "date_sub({}, {})"))
        return Expr(text, "date", (self.value("date", depth), Expr("CAST({} AS int)", "int", (days,))))
