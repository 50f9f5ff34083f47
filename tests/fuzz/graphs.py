"""Random graphs of queries: aggregates over scans, over joins and over each other, with filters and computed columns.

scan      filters, computed columns  >  groups
joins     joins  >  filters, computed columns  >  groups
derived   joins  >  a query with computed columns  >  filters  >  groups
again     groups  >  joins with groups and tables  >  groups or rows
twice     WITH groups: read twice, and joined
union     groups, and others of the same types
rows      joins  >  filters  >  computed columns, or DISTINCT rows
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.fuzz.aggregates import AggregateMaker
from tests.fuzz.columnar import ColumnarMaker
from tests.fuzz.queries import QueryMaker, Relation, column_of, result_items
from tests.fuzz.sql import Derived, Expr, Group, Item, Query, Select, SetOperation, TableSource, With
from tests.fuzz.tables import Universe
from tests.fuzz.types import ABOUT, EXACT

SHAPES = {"scan": 20, "joins": 25, "derived": 15, "again": 15, "twice": 8, "union": 7, "rows": 10}
"""Shapes of graphs, with their frequencies."""
_KEYABLE = (*EXACT, "float")


class GraphMaker(QueryMaker):
    """Draws queries of one shape. The relations of a query have unique aliases."""

    ordered_share = 0.3
    expressions = ColumnarMaker

    def __init__(self, r: random.Random, universe: Universe, reckless: bool, shape: str) -> None:
        super().__init__(r, universe, reckless)
        self._shape = shape

    def query(self) -> Query:
        """Return a whole query."""
        body: Query = getattr(self, f"_{self._shape}")()
        return self._ordered(body)

    # Shapes

    def _scan(self) -> Query:
        return self._groups(self._of_table())

    def _joins(self) -> Query:
        return self._groups(self._several())

    def _derived(self) -> Query:
        return self._groups(self._named(self._row_query(self._several(), distinct=False)))

    def _again(self) -> Query:
        r = self._r
        inner = self._groups(self._of_table() if r.random() < 0.5 else self._several())
        whole = self._named(inner)
        for _ in range(r.choice((0, 1, 1, 2))):
            other = self._named(self._groups(self._of_table())) if r.random() < 0.4 else self._of_table()
            whole = self._joined(*((whole, other) if r.random() < 0.5 else (other, whole)))
        return self._groups(whole) if r.random() < 0.6 else self._row_query(whole)

    def _twice(self) -> Query:
        query = self._groups(self._of_table() if self._r.random() < 0.5 else self._several())
        whole = self._joined(self._common_one(query), self._common_one(query))
        body = self._groups(whole) if self._r.random() < 0.5 else self._row_query(whole)
        return With((("w0", query),), body)

    def _union(self) -> Query:
        r = self._r
        families = tuple(r.choice(EXACT[:6]) for _ in range(r.choice((1, 2, 3))))
        word = r.choice(("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT"))
        sides = [self._groups(self._of_table() if r.random() < 0.5 else self._several(), families) for _ in range(2)]
        both = SetOperation(word, *sides)
        if r.random() < 0.5:
            return both
        alias = self._alias()
        columns = tuple(column_of(alias, item.name, item.value.family) for item in result_items(both))
        return self._groups(Relation(Derived(both, alias), columns, 20))

    def _rows(self) -> Query:
        return self._row_query(self._several())

    # Parts

    def _of_table(self) -> Relation:
        return self._table(self._r.choice(self._universe.tables), direct=self._r.random() < 0.1)

    def _several(self) -> Relation:
        joined = self._of_table()
        for _ in range(self._r.choice((1, 1, 2, 3))):
            joined = self._joined(joined, self._of_table())
        return joined

    def _named(self, query: Query) -> Relation:
        alias = self._alias()
        columns = tuple(column_of(alias, item.name, item.value.family) for item in result_items(query))
        return Relation(Derived(query, alias), columns, 20)

    def _common_one(self, query: Query) -> Relation:
        alias = self._alias()
        columns = tuple(column_of(alias, item.name, item.value.family) for item in result_items(query))
        return Relation(TableSource("w0", alias, tuple(c.column[1] for c in columns if c.column)), columns, 20)

    def _columnar(self, columns: Sequence[Expr]) -> ColumnarMaker:
        return ColumnarMaker(self._r, columns, self._universe.extreme, self._reckless)

    def _where(self, relation: Relation) -> tuple[Expr, ...]:
        r = self._r
        maker = self._columnar(relation.columns)
        where = tuple(maker.predicate(r.choice((0, 1, 2))) for _ in range(r.choice((0, 0, 1, 1, 2))))
        if r.random() < 0.05 and (found := self._subquery(relation.columns, "predicate")) is not None:
            where += (found,)
        return where

    def _row_query(self, relation: Relation, distinct: bool = True) -> Select:
        """Return filtered rows with computed columns."""
        r = self._r
        maker = self._columnar(relation.columns)
        chosen = r.sample(relation.columns, min(len(relation.columns), r.randint(1, 6)))
        values = [*chosen, *(maker.value(maker.some_family()) for _ in range(r.choice((0, 1, 1, 2))))]
        items = tuple(Item(value, f"v{number}") for number, value in enumerate(values))
        distinct = distinct and r.random() < 0.3 and all(value.family in _KEYABLE for value in values)
        hints = self._hints(relation)
        return Select(items, relation.source, self._where(relation), distinct=distinct, hints=hints)

    def _groups(self, relation: Relation, families: Sequence[str] = ()) -> Select:
        """Return an aggregate; `families` are the required families of its columns, if any."""
        r = self._r
        maker = self._columnar(relation.columns)
        aggregates = AggregateMaker(r, maker, self._universe.extreme, self._reckless)
        keys = self._keys(maker, families)
        way = r.choice(("ROLLUP", "CUBE", "GROUPING SETS")) if keys and not families and r.random() < 0.08 else ""
        if families:
            calls = [aggregates.call_of(family) for family in families[len(keys) :]]
        else:
            calls = [aggregates.call() for _ in range(r.choice((0, 1, 1, 2, 2, 3, 6)) if keys else r.choice((1, 2, 3)))]
        values = [*keys, *calls]
        if not families and not way:
            values += self._over(values)
        items = tuple(Item(value, f"g{number}") for number, value in enumerate(values))
        having: tuple[Expr, ...] = ()
        if r.random() < 0.25 and not way:
            above = [value for value in (*keys, *calls) if value.family != ABOUT] or [Expr("count(1)", "int")]
            having = (self._columnar(above).predicate(1),)
        group = Group(tuple(keys), way)
        return Select(items, relation.source, self._where(relation), group, having, hints=self._hints(relation))

    def _keys(self, maker: ColumnarMaker, families: Sequence[str]) -> list[Expr]:
        r = self._r
        if families:
            return [maker.value(family, r.choice((0, 1, 2))) for family in families[: r.randint(0, len(families) - 1)]]
        keyable = [column for column in maker.columns if column.family in _KEYABLE]
        keys = r.sample(keyable, min(len(keyable), r.choice((0, 1, 1, 1, 2, 2, 3, 5))))
        if r.random() < 0.4:
            computed = maker.value(maker.some_family(_KEYABLE), 2)
            keys = [*keys[1:], computed]
        # Spark reads a constant in GROUP BY as a column's position, or drops it.
        return [
            key if key.args or key.column is not None else Expr("coalesce({, })", key.family, (key, key))
            for key in keys
        ]

    def _over(self, values: Sequence[Expr]) -> list[Expr]:
        """Return expressions over keys and aggregate calls."""
        known = [value for value in values if value.family != ABOUT]
        if not known or self._r.random() >= 0.3:
            return []
        maker = self._columnar(known)
        return [maker.value(maker.some_family(), 1)]
