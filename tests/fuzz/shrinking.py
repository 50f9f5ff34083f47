"""Shrinks a failing case by removing parts of the query, settings, rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from typing import Any

from tests.fuzz.cases import Case
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
    TableSource,
    With,
    parts,
    walk,
)
from tests.fuzz.tables import Universe
from tests.support.harness.shrinking import PATIENCE_SECONDS, omit_parts, shrink
from tests.support.sql import quoted

_QUERIES = (Select, SetOperation, With, Ordered)
_ONE = Expr("1", "int")


def shrunk(case: Case, is_wrong: Callable[[Case], bool], patience: float = PATIENCE_SECONDS) -> Case:
    """Return the smallest failing case found within the time limit; `is_wrong` creates the tables of a case."""
    return shrink(case, (_smaller_queries, _fewer_settings, _smaller_universes, _smaller_queries), is_wrong, patience)


def _smaller_queries(case: Case) -> Iterator[Case]:
    size = _size(case.query)
    found = {query.sql(): query for query in map(_mended, _candidates(case.query)) if _size(query) < size}
    for query in sorted(found.values(), key=_size):
        yield replace(case, query=query)


def _size(node: Any) -> int:
    return (
        sum(3 if isinstance(n, Select | Joined | Ordered | With | SetOperation) else 1 for n in walk(node))
        + sum(len(n.sql()) for n in walk(node) if isinstance(n, Expr) and not n.args) // 100
    )


def _candidates(node: Any) -> Iterator[Any]:
    """Yield replacements of a node: simpler nodes, and copies with one part less somewhere below."""
    yield from _simpler(node)
    if isinstance(node, Expr):
        listed = "{}" not in node.text
        yield from (
            replace(node, args=args) for args in _fewer(node.args) if len(args) == len(node.args) or (listed and args)
        )
    elif not isinstance(node, TableSource):
        for name, value in parts(node):
            # A LIMIT is deterministic only if rows are ordered by all columns.
            if not (isinstance(node, Ordered) and name == "keys"):
                for smaller in _candidates(value) if is_dataclass(value) else _fewer(value):
                    yield replace(node, **{name: smaller})


def _fewer(values: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield a tuple without halves, quarters and so on, and with one of its members simplified."""
    yield from omit_parts(values, len(values) // 32 + 1)  # single members of long lists would cost thousands of queries
    for place, value in enumerate(values):
        if is_dataclass(value):
            for smaller in _candidates(value):
                yield (*values[:place], smaller, *values[place + 1 :])
        elif isinstance(value, tuple):
            for part in _fewer(value):
                if len(part) == len(value):
                    yield (*values[:place], part, *values[place + 1 :])


def _simpler(node: Any) -> Iterator[Any]:
    if isinstance(node, Expr):
        if node.args or node.column is not None:
            yield from (other for other in walk(node.args) if isinstance(other, Expr) and other.family == node.family)
            yield from (Expr(text, "bool") for text in ("true", "false") if node.family == "bool" and node.args)
            yield from (_ONE for _ in [0] if node.family == "int" and node.args)
    elif isinstance(node, Joined):
        yield from (node.left, node.right)
        if node.kind != "INNER" and not node.kind.startswith("NATURAL"):
            yield replace(node, kind="INNER")
    elif isinstance(node, Derived):
        yield from (source for source in walk(node.query) if isinstance(source, TableSource))
    elif isinstance(node, _QUERIES):
        yield from (other for other in walk(node) if isinstance(other, _QUERIES) and other is not node)
        if isinstance(node, Select):
            yield replace(node, distinct=False, hints=(), group=None, having=())
            yield replace(node, group=None, having=())
    elif isinstance(node, Group) and node.way:
        yield replace(node, way="")


def _mended(query: Any) -> Any:
    """Remove references to removed relations, and give every query at least one column."""
    return _mend(query, frozenset())


def _mend(node: Any, outer: frozenset[str]) -> Any:
    if isinstance(node, Select):
        inside = outer | _aliases(node.source)

        def kept(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(_mend(value, inside) for value in values if _is_in_sight(value, inside))

        items = kept(node.items) or (Item(_ONE, "one"),)
        group = None if node.group is None else replace(node.group, keys=kept(node.group.keys))
        hints = tuple(hint for hint in node.hints)
        source = _mend(node.source, inside)
        return Select(items, source, kept(node.where), group, kept(node.having), node.distinct, hints)
    if isinstance(node, Joined):
        on = tuple(_mend(part, outer) for part in node.on if _is_in_sight(part, outer))
        kind, conditional = node.kind, bool(on or node.using) or node.kind.startswith("NATURAL")
        if not conditional and kind != "CROSS":
            on = (Expr("true", "bool"),)
        return Joined(kind, _mend(node.left, outer), _mend(node.right, outer), on, node.using)
    if isinstance(node, Ordered):
        body = _mend(node.body, outer)
        return replace(node, body=body, keys=node.keys[: len(_columns(body))])
    if is_dataclass(node):
        return replace(node, **{name: _mend(value, outer) for name, value in parts(node)})  # type: ignore[type-var]
    if isinstance(node, tuple):
        return tuple(_mend(value, outer) for value in node)
    return node


def _columns(query: Query) -> tuple[Item, ...]:
    while not isinstance(query, Select):
        query = query.left if isinstance(query, SetOperation) else query.body
    return query.items


def _aliases(source: Any) -> frozenset[str]:
    """Return the aliases that a FROM makes visible."""
    if isinstance(source, Joined):
        return _aliases(source.left) | _aliases(source.right)
    return frozenset((source.alias,))


def _is_in_sight(node: Any, aliases: frozenset[str]) -> bool:
    inside = {other.alias for other in walk(node) if isinstance(other, TableSource | Derived)}
    columns = (other.column for other in walk(node) if isinstance(other, Expr) and other.column)
    return all(column[0] in aliases or column[0] in inside for column in columns)


def _fewer_settings(case: Case) -> Iterator[Case]:
    for setting in case.settings:
        yield replace(case, settings={name: value for name, value in case.settings.items() if name != setting})


def _smaller_universes(case: Case) -> Iterator[Case]:
    """Yield cases with fewer tables, rows, and columns."""
    universe = case.universe
    sql = case.query.sql()
    named = {name for node in walk(case.query) if isinstance(node, TableSource) for name in [node.name]}
    used = tuple(t for t in universe.tables if any(name == t.name or name.endswith(f"/{t.name}`") for name in named))
    if len(used) < len(universe.tables):
        yield replace(case, universe=replace(universe, tables=used))
    for number, table in enumerate(universe.tables):
        length = len(table.rows)
        without = length
        while without:
            for start in range(0, length, without):
                rows = table.rows[:start] + table.rows[start + without :]
                yield _with_table(case, number, replace(table, rows=rows))
            without //= 2
        for place, column in enumerate(table.columns):
            if quoted(column.name) not in sql and len(table.columns) > 1 + table.storage.partitions:
                if place >= len(table.columns) - table.storage.partitions:
                    continue
                columns = table.columns[:place] + table.columns[place + 1 :]
                rows = tuple(row[:place] + row[place + 1 :] for row in table.rows)
                yield _with_table(case, number, replace(table, columns=columns, rows=rows))
        if table.storage.files > 1:
            yield _with_table(case, number, replace(table, storage=replace(table.storage, files=1)))


def _with_table(case: Case, number: int, table: Any) -> Case:
    universe: Universe = case.universe
    tables = (*universe.tables[:number], table, *universe.tables[number + 1 :])
    return replace(case, universe=replace(universe, tables=tables))
