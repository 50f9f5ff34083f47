"""Random queries over the tables of a universe."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.fuzz.expressions import ExpressionMaker
from tests.fuzz.sql import (
    Derived,
    Expr,
    Group,
    Item,
    Joined,
    Ordered,
    Query,
    Select,
    SetOperation,
    Source,
    TableSource,
    With,
    walk,
)
from tests.fuzz.tables import Table, Universe
from tests.fuzz.types import EXACT, NUMBERS
from tests.support.sql import quoted

KINDS = {
    "INNER": 34,
    "LEFT": 20,
    "RIGHT": 9,
    "FULL": 9,
    "LEFT SEMI": 10,
    "LEFT ANTI": 9,
    "CROSS": 3,
}
_WITHOUT_COLUMNS = ("LEFT SEMI", "LEFT ANTI")
_MOST_ROWS = 1_500
_KEYABLE = (*EXACT, "float")
FOLDER = "/folder/of/tables"
"""Placeholder for the folder of the tables' files in a query."""


@dataclass(frozen=True)
class Relation:
    """An item of FROM: its columns as expressions, and its approximate number of rows."""

    source: Source
    columns: tuple[Expr, ...]
    rows: float


class QueryMaker:
    """Draws queries. The relations of a query have unique aliases."""

    ordered_share = 0.15
    expressions = ExpressionMaker

    def __init__(self, r: random.Random, universe: Universe, reckless: bool) -> None:
        self._r = r
        self._universe = universe
        self._reckless = reckless
        self._aliases = 0
        self._common: list[tuple[str, Query]] = []

    def query(self) -> Query:
        """Return a whole query."""
        r = self._r
        if r.random() < 0.1:
            for number in range(r.choice((1, 1, 2))):
                self._common.append((f"w{number}", self._small_query(True)))
        body = self._body()
        if self._common:
            body = With(tuple(self._common), body)
        return self._ordered(body)

    def _body(self) -> Query:
        r = self._r
        if r.random() >= 0.08:
            return self._select()
        families = [r.choice(EXACT[:6]) for _ in range(r.choice((1, 2, 3)))]
        word = r.choice(("UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"))
        return SetOperation(word, self._select(families, plain=True), self._select(families, plain=True))

    def _ordered(self, body: Query) -> Query:
        """Order by all columns, if rows that compare as equal are identical."""
        r = self._r
        families = result_families(body)
        if r.random() >= self.ordered_share or not families or not all(family in EXACT for family in families):
            return body
        orders = ("ASC", "DESC", "ASC NULLS LAST", "DESC NULLS FIRST")
        keys = tuple(f"{number} {r.choice(orders)}" for number in range(1, len(families) + 1))
        limit = r.choice((None, 0, 1, 3, 10, 100))
        return Ordered(body, keys, limit, r.choice((None, None, 2)) if limit is not None else None)

    def _alias(self) -> str:
        self._aliases += 1
        return f"r{self._aliases}"

    # FROM

    def _relation(self, visible: Sequence[Expr] = ()) -> Relation:
        """Return a table, a query, or a common table expression."""
        r = self._r
        if self._common and r.random() < 0.6:
            name, query = r.choice(self._common)
            alias = self._alias()
            columns = tuple(column_of(alias, item.name, item.value.family) for item in result_items(query))
            return Relation(TableSource(name, alias, tuple(c.column[1] for c in columns if c.column)), columns, 20)
        if r.random() < 0.15:
            query = self._small_query()
            alias = self._alias()
            columns = tuple(column_of(alias, item.name, item.value.family) for item in result_items(query))
            return Relation(Derived(query, alias), columns, 20)
        return self._table(r.choice(self._universe.tables))

    def _table(self, table: Table, direct: bool = False) -> Relation:
        """Return a table by its view, or directly by its files if it is stored in Parquet files without partitions."""
        alias = self._alias()
        columns = tuple(column_of(alias, column.name, column.of.family) for column in table.columns)
        direct = direct and table.storage.way in ("spark parquet", "pyarrow") and not table.storage.partitions
        name = f"parquet.`{FOLDER}/{table.name}`" if direct else table.name
        source = TableSource(name, alias, tuple(column.name for column in table.columns))
        return Relation(source, columns, len(table.rows))

    def _small_query(self, whole: bool = False) -> Query:
        """Return a query over one table, or over a join of two."""
        r = self._r
        table = self._table(r.choice(self._universe.tables), direct=r.random() < 0.3)
        if whole and r.random() < 0.5:
            table = self._joined(table)
        maker = self._maker(table.columns)
        way = r.randrange(6)
        where = (maker.predicate(1),) if r.random() < 0.5 else ()
        if way == 0:
            return self._grouped(table, where)
        items = [Item(column, f"d{number}") for number, column in enumerate(table.columns)]
        if way == 1:
            items += self._windows(table.columns, len(items))
        elif way == 2:
            items.append(Item(maker.value(maker.some_family()), f"d{len(items)}"))
        if (found := self._file_function(table)) is not None:
            items.append(found)
        distinct = way == 4 and all(item.value.family in EXACT for item in items)
        return Select(tuple(items), table.source, where, distinct=distinct)

    def _file_function(self, table: Relation) -> Item | None:
        """Return an expression about the file of a row, which Spark allows for a single table; or None."""
        if not isinstance(table.source, TableSource) or not table.source.name.startswith("parquet."):
            return None
        names = (("file_name", "string"), ("file_path", "string"), ("file_size", "int"), ("row_index", "int"))
        own = (
            *(
                ("input_file_name()", "string"),
                ("input_file_block_start()", "int"),
                ("input_file_block_length()", "int"),
            ),
            *(("spark_partition_id()", "int"), ("monotonically_increasing_id()", "int"), ("rand(3)", "float")),
        )
        choices = [(f"{table.source.alias}._metadata.{name}", family) for name, family in names] + list(own)
        return Item(Expr(*self._r.choice(choices)), "f")

    def _sources(self) -> Relation:
        r = self._r
        joined = self._relation()
        for _ in range(r.choices((0, 1, 2, 3), (4, 48, 33, 15))[0]):
            joined = self._joined(joined)
        return joined

    def _joined(self, left: Relation, right: Relation | None = None) -> Relation:
        """Join a relation with another relation, or with a join of two."""
        r = self._r
        if right is None:
            if r.random() < 0.04:
                return self._lateral(left)
            right = self._relation()
            if r.random() < 0.08:
                right = self._joined(right)
        kind = r.choices(list(KINDS), list(KINDS.values()))[0]
        if r.random() < 0.03 and (using := self._using(kind, left, right)) is not None:
            return using
        large = left.rows * right.rows > _MOST_ROWS
        if kind == "CROSS" and not large:
            on: tuple[Expr, ...] = ()
            rows = left.rows * right.rows
        else:
            kind = "INNER" if kind == "CROSS" else kind
            on, share = self._on(left.columns, right.columns, kind, large)
            rows = left.rows * right.rows * share
        columns = left.columns if kind in _WITHOUT_COLUMNS else left.columns + right.columns
        rows = left.rows if kind in _WITHOUT_COLUMNS else max(rows, left.rows, right.rows)
        return Relation(Joined(kind, left.source, right.source, on), columns, rows)

    def _using(self, kind: str, left: Relation, right: Relation) -> Relation | None:
        """Join by the names that are unique on both sides; as a natural join in some cases.

        Return None if there are none.
        """
        names = [[column.column[1] for column in side.columns if column.column] for side in (left, right)]
        both = tuple(name for name in names[0] if names[0].count(name) == names[1].count(name) == 1)
        if not both or kind == "CROSS":
            return None
        natural = self._r.random() < 0.4
        # A column that is merged in the result is still visible under both of its names.
        columns = left.columns if kind in _WITHOUT_COLUMNS else left.columns + right.columns
        source = Joined(
            f"NATURAL {kind}" if natural else kind, left.source, right.source, using=() if natural else both
        )
        return Relation(source, columns, max(left.rows, right.rows) * 4)

    def _lateral(self, left: Relation) -> Relation:
        inner = self._table(self._r.choice(self._universe.tables))
        maker = self._maker(inner.columns + left.columns)
        where = (
            self._equality(left.columns, inner.columns),
            *((maker.comparison("int", 1),) if self._r.random() < 0.3 else ()),
        )
        if self._r.random() < 0.4:
            query = Select((Item(Expr("count(*)", "int"), "d0"),), inner.source, where, Group(()))
        else:
            query = Select(tuple(Item(c, f"d{n}") for n, c in enumerate(inner.columns)), inner.source, where)
        alias = self._alias()
        columns = tuple(column_of(alias, item.name, item.value.family) for item in query.items)
        kind = self._r.choice(("INNER", "LEFT", "CROSS"))
        on = () if kind == "CROSS" else (Expr("true", "bool"),)
        source = Joined(kind, left.source, Derived(query, alias, lateral=True), on)
        return Relation(source, left.columns + columns, max(left.rows, left.rows * inner.rows / 4))

    # Conditions of joins

    def _on(
        self, left: Sequence[Expr], right: Sequence[Expr], kind: str, large: bool
    ) -> tuple[tuple[Expr, ...], float]:
        """Return the conjuncts of a condition, and an estimate of the share of pairs that satisfy it."""
        r = self._r
        full = kind == "FULL" and r.random() < 0.8
        way = 0 if large or full else r.choices((0, 1, 2, 3, 4), (64, 18, 6, 5, 7))[0]
        if way == 0:
            on = tuple(self._equality(left, right) for _ in range(r.choice((1, 1, 1, 1, 2, 3))))
            if not full and r.random() < 0.3:
                on += (self._residual(left, right),)
            return on, 0.25
        if way == 1:
            on = self._interval(left, right)
            if r.random() < 0.4:
                on += (self._equality(left, right),)
            if r.random() < 0.2:
                on += (self._residual(left, right),)
            return on, 0.5
        if way == 2:
            return (self._nested_or(left, right),), 0.6
        if way == 3:
            return (self._formula(left, right),), 0.6
        return (self._residual(left, right), *((self._equality(left, right),) if r.random() < 0.5 else ())), 1.0

    def _pair(self, left: Sequence[Expr], right: Sequence[Expr], among: Sequence[str]) -> tuple[Expr, Expr]:
        """Return a column of each side, mostly of the same family."""
        r = self._r
        families = {c.family for c in left} & {c.family for c in right} & set(among)
        if families:
            family = r.choice(sorted(families))
            return (
                r.choice([c for c in left if c.family == family]),
                r.choice([c for c in right if c.family == family]),
            )
        numbers = [[c for c in side if c.family in NUMBERS and c.family in among] for side in (left, right)]
        if all(numbers):
            return r.choice(numbers[0]), r.choice(numbers[1])
        family = next((c.family for c in left if c.family in among), "int")
        return self._maker(left).value(family, 0), self._maker(right).value(family, 0)

    def _equality(self, left: Sequence[Expr], right: Sequence[Expr]) -> Expr:
        r = self._r
        among = _KEYABLE if r.random() < 0.97 else (*_KEYABLE, "array", "struct", "folded", "months")
        one, other = self._pair(left, right, among)
        if r.random() < 0.15:
            one = self._maker(left).value(one.family, 2)
        if r.random() < 0.1:
            other = self._maker(right).value(other.family, 1)
        if r.random() < 0.3:
            one, other = other, one
        return Expr(f"({{}} {r.choice(('=', '=', '=', '<=>'))} {{}})", "bool", (one, other))

    def _interval(self, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return comparisons of the two sides: one, two, or a band."""
        r = self._r
        one, other = self._pair(left, right, _KEYABLE)
        way = r.randrange(5)
        if way == 0:
            return (Expr(f"({{}} {r.choice(('<', '<=', '>', '>='))} {{}})", "bool", (one, other)),)
        if way == 1 and one.family in NUMBERS:
            width = Expr(str(r.choice((0, 1, 2, 3))), "int")
            return (Expr(f"(abs({{}} - {{}}) {r.choice(('<', '<='))} {{}})", "bool", (one, other, width)),)
        if way == 2 and one.family in (*NUMBERS, "date"):
            widths = (Expr(str(r.choice((0, 1, 2))), "int"), Expr(str(r.choice((0, 1, 3))), "int"))
            return (Expr("({} BETWEEN {} - {} AND {} + {})", "bool", (one, other, widths[0], other, widths[1])),)
        ends = [c for c in right if c.family == other.family] or [other]
        starts = [c for c in left if c.family == one.family] or [one]
        low = Expr(f"({{}} {r.choice(('>', '>='))} {{}})", "bool", (one, other))
        end = r.choice(ends)
        if one.family in ("int", "decimal", "date") and r.random() < 0.4:
            end = Expr(r.choice(("({} + 1)", "({} - 1)")), end.family, (end,))
        high = Expr(f"({{}} {r.choice(('<', '<='))} {{}})", "bool", (r.choice(starts), end))
        return (low, high)

    def _nested_or(self, left: Sequence[Expr], right: Sequence[Expr]) -> Expr:
        r = self._r
        parts = []
        for _ in range(r.choice((2, 2, 3))):
            inside = (self._equality(left, right), self._residual(left, right))
            parts.append(inside[0] if r.random() < 0.5 else Expr("({ AND })", "bool", inside))
        return Expr("({ OR })", "bool", tuple(parts))

    def _formula(self, left: Sequence[Expr], right: Sequence[Expr]) -> Expr:
        one, other = self._pair(left, right, ("int", "float", "decimal"))
        third = self._pair(left, right, ("int", "float", "decimal"))[0]
        operators = [self._r.choice(("+", "-", "*")) for _ in range(2)]
        text = f"({{}} {operators[0]} {{}} {operators[1]} {{}} {self._r.choice(('<', '>=', '=', '<>'))} {{}})"
        return Expr(text, "bool", (one, other, third, Expr(str(self._r.choice((0, 1, 3, 10))), "int")))

    def _residual(self, left: Sequence[Expr], right: Sequence[Expr]) -> Expr:
        """Return a condition on one side, or on both."""
        r = self._r
        columns = [*left, *right] if r.random() < 0.7 else r.choice((left, right))
        subquery = self._subquery_over(columns) if r.random() < 0.05 else None
        maker = self.expressions(r, columns, self._universe.extreme, self._reckless, subquery)
        return maker.predicate(r.choice((0, 1, 2)))

    # SELECT

    def _select(self, families: Sequence[str] = (), plain: bool = False) -> Query:
        """Return a SELECT; `families` are the required families of its columns, if any."""
        r = self._r
        relation = self._sources()
        maker = self._maker(relation.columns, subqueries=True)
        where = tuple(maker.predicate(r.choice((0, 1, 2))) for _ in range(r.choice((0, 0, 0, 0, 1, 2))))
        if r.random() < 0.2 and (found := self._subquery(relation.columns, "predicate")) is not None:
            where += (found if r.random() < 0.4 else Expr("({ OR })", "bool", (found, maker.predicate(1))),)
        hints = self._hints(relation)
        if families:
            items = tuple(Item(maker.value(family, 1), f"c{n}") for n, family in enumerate(families))
            return Select(items, relation.source, where, hints=hints)
        if not plain and r.random() < 0.2:
            return replace(self._grouped(relation, where), hints=hints)
        if r.random() < 0.04 and len(relation.columns) == len({str(c.column) for c in relation.columns}):
            return Select((Item(Expr("*", ""), "*"),), relation.source, where, hints=hints)
        items = tuple(self._items(relation.columns, maker))
        if not plain and r.random() < 0.1 and self._has_one_file_source(relation.source):
            items += (Item(Expr("input_file_name()", "string"), "f"),)
        if not plain and r.random() < 0.08:
            items += tuple(self._windows(relation.columns, len(items)))
        distinct = r.random() < 0.07 and all(item.value.family in (*EXACT, "float") for item in items)
        return Select(items, relation.source, where, distinct=distinct, hints=hints)

    def _has_one_file_source(self, source: Source) -> bool:
        """Return whether Spark accepts functions of file names, which need a single source."""
        ways = {table.name: table.storage.way for table in self._universe.tables}
        names = [node.name for node in walk(source) if isinstance(node, TableSource)]
        of_files = [name for name in names if ways.get(name) not in ("values", "cached")]
        return len(names) > len(of_files) == 1 and not any(isinstance(node, Derived) for node in walk(source))

    def _items(self, columns: Sequence[Expr], maker: ExpressionMaker) -> list[Item]:
        r = self._r
        chosen = r.sample(columns, min(len(columns), r.randint(1, 6)))
        items = [Item(column, f"c{number}") for number, column in enumerate(chosen)]
        for _ in range(r.choice((0, 0, 1, 2))):
            items.append(Item(maker.value(maker.some_family()), f"c{len(items)}"))
        if r.random() < 0.06:
            items.append(Item(maker.predicate(), f"c{len(items)}"))
        if r.random() < 0.1:
            items = [replace(item, name=r.choice(("c", "a.b", "x y", "K"))) for item in items]
        return items

    def _windows(self, columns: Sequence[Expr], first: int) -> list[Item]:
        """Return window functions whose value is the same for rows with equal order keys."""
        r = self._r
        by = r.choice([c for c in columns if c.family in EXACT] or [Expr("1", "int")])
        order = r.choice([c for c in columns if c.family in EXACT] or [Expr("1", "int")])
        over = f"OVER (PARTITION BY {by.sql()} ORDER BY {order.sql()} {r.choice(('', 'DESC'))})"
        of = r.choice([c for c in columns if c.family in EXACT] or [Expr("1", "int")])
        call = r.choice(
            ("rank()", "dense_rank()", "percent_rank()", "count(*)", f"max({of.sql()})", f"count({of.sql()})")
        )
        family = of.family if call.startswith("max") else "float" if call.startswith("percent") else "int"
        return [Item(Expr(f"{call} {over}", family), f"c{first}" if first < 100 else "w")]

    def _grouped(self, relation: Relation, where: tuple[Expr, ...]) -> Select:
        r = self._r
        columns = relation.columns
        maker = self._maker(columns)
        keyable = [c for c in columns if c.family in (*EXACT, "float")]
        keys = tuple(r.sample(keyable, min(len(keyable), r.choice((0, 1, 1, 2)))))
        if keys and r.random() < 0.2:
            keys = (maker.value(keys[0].family, 2), *keys[1:])
        way = r.choice(("ROLLUP", "CUBE", "GROUPING SETS")) if keys and r.random() < 0.15 else ""
        calls = [self._aggregate(columns, maker) for _ in range(r.choice((1, 1, 2, 3)))]
        items = tuple(Item(value, f"g{number}") for number, value in enumerate((*keys, *calls)))
        having = (
            (Expr(f"({{}} {r.choice(('>', '<', '<>'))} 1)", "bool", (Expr("count(*)", "int"),)),)
            if r.random() < 0.2
            else ()
        )
        return Select(items, relation.source, where, Group(keys, way), having)

    def _aggregate(self, columns: Sequence[Expr], maker: ExpressionMaker) -> Expr:
        """Return an aggregate whose value does not depend on the order of rows."""
        r = self._r
        exact = [c for c in columns if c.family in EXACT]
        way = r.randrange(6)
        of = r.choice(exact) if exact else Expr("1", "int")
        if way == 0:
            return Expr("count(*)", "int")
        if way == 1:
            return Expr(r.choice(("min({})", "max({})")), of.family, (of,))
        if way == 2:
            return Expr(r.choice(("count({})", "count(DISTINCT {})")), "int", (of,))
        if way == 3:
            return Expr("sum({} % 1000)", "int", (maker.value("int", 1),))
        if way == 4:
            filtered = Expr("count(*) FILTER (WHERE {})", "int", (maker.predicate(1),))
            return filtered if r.random() < 0.5 else Expr("sum(CAST({} AS int))", "int", (maker.predicate(1),))
        text, family = r.choice((("bit_xor({})", "int"), ("bool_or({} > 2)", "bool")))
        return Expr(text, family, (maker.value("int", 1),))

    def _hints(self, relation: Relation) -> tuple[str, ...]:
        r = self._r
        aliases = [node.alias for node in walk(relation.source) if isinstance(node, TableSource | Derived)]
        hints = []
        if aliases and r.random() < 0.35:
            hints.append(f"PIPELINED_JOIN({', '.join(r.sample(aliases, r.randint(1, len(aliases))))})")
        if aliases and r.random() < 0.02:
            hints.append(f"{r.choice(('BROADCAST', 'MERGE', 'SHUFFLE_HASH'))}({r.choice(aliases)})")
        return tuple(hints)

    # Subqueries

    def _maker(self, columns: Sequence[Expr], subqueries: bool = False) -> ExpressionMaker:
        return self.expressions(
            self._r,
            columns,
            self._universe.extreme,
            self._reckless,
            self._subquery_over(columns) if subqueries and self._r.random() < 0.4 else None,
        )

    def _subquery_over(self, outer: Sequence[Expr]):  # type: ignore[no-untyped-def]
        return lambda family: self._subquery(outer, family)

    def _subquery(self, outer: Sequence[Expr], family: str) -> Expr | None:
        """Return EXISTS or IN for `predicate`, otherwise a scalar subquery. Most are correlated with `outer`."""
        r = self._r
        inner = self._table(r.choice(self._universe.tables))
        if r.random() < 0.15:
            inner = self._joined(inner)
        where = [self._equality(outer, inner.columns)] if r.random() < 0.7 else []
        if r.random() < 0.4:
            seen = family == "predicate" and r.random() < 0.8
            where.append(self._residual(outer, inner.columns) if seen else self._maker(inner.columns).predicate(1))
        if family != "predicate":
            return self._scalar(inner, family, tuple(where))
        if r.random() < 0.5:
            select = Select((Item(Expr("1", "int"), "one"),), inner.source, tuple(where))
            return Expr(r.choice(("EXISTS ({})", "NOT EXISTS ({})", "(NOT EXISTS ({}))")), "bool", (select,))
        one, other = self._pair(outer, inner.columns, _KEYABLE)
        select = Select((Item(other, "one"),), inner.source, tuple(where))
        return Expr(r.choice(("({} IN ({}))", "({} IN ({}))", "({} NOT IN ({}))")), "bool", (one, select))

    def _scalar(self, inner: Relation, family: str, where: tuple[Expr, ...]) -> Expr | None:
        r = self._r
        of = [c for c in inner.columns if c.family == family]
        if family == "int" and r.random() < 0.5:
            value = Expr("count(*)", "int")
        elif of:
            value = Expr(r.choice(("max({})", "min({})")), family, (r.choice(of),))
        else:
            return None
        return Expr("({})", family, (Select((Item(value, "one"),), inner.source, where, Group(())),))


def column_of(alias: str, name: str, family: str) -> Expr:
    """Return a column of a relation."""
    return Expr(f"{alias}.{quoted(name)}", family, column=(alias, name))


def result_items(query: Query) -> tuple[Item, ...]:
    """Return the columns of a query's result."""
    if isinstance(query, SetOperation):
        return result_items(query.left)
    if isinstance(query, With | Ordered):
        return result_items(query.body)
    return query.items


def result_families(query: Query) -> list[str]:
    """Return the families of the columns of a query's result, or nothing if they are unknown."""
    items = result_items(query)
    return [] if any(item.value.text == "*" for item in items) else [item.value.family for item in items]
