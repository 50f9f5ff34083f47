"""Queries as trees, and their SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from tests.support.sql import quoted

_PLACE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Expr:
    """An expression: `text` with `{}` for each argument, or with one separator in braces, as `{, }`, for all arguments.

    A leaf is its text without placeholders; `column` identifies a column as (alias, name).
    """

    text: str
    family: str
    args: tuple[Node, ...] = ()
    column: tuple[str, str] | None = None

    def sql(self) -> str:
        """Return the expression as SQL."""
        if not self.args:
            return self.text
        if "{}" in self.text:
            each = iter([arg.sql() for arg in self.args])
            return _PLACE.sub(lambda _: next(each), self.text)
        parts = [arg.bare() if isinstance(arg, Expr) else arg.sql() for arg in self.args]
        return _PLACE.sub(lambda between: between[1].join(parts), self.text)

    def bare(self) -> str:
        """Return the SQL without outer parentheses, which a list does not need; nested ones are slow to parse."""
        return self.sql()[1:-1] if self.args and self.text.startswith("({} ") else self.sql()


@dataclass(frozen=True)
class TableSource:
    """A view by its name."""

    name: str
    alias: str
    columns: tuple[str, ...]

    def sql(self) -> str:
        return f"{self.name} AS {self.alias}"


@dataclass(frozen=True)
class Derived:
    """A query in FROM."""

    query: Query
    alias: str
    lateral: bool = False

    def sql(self) -> str:
        return f"{'LATERAL ' * self.lateral}({self.query.sql()}) AS {self.alias}"


@dataclass(frozen=True)
class Joined:
    """A join; `kind` is spelled as in SQL. Without `on` and `using`, it has no condition of its own."""

    kind: str
    left: Source
    right: Source
    on: tuple[Expr, ...] = ()
    using: tuple[str, ...] = ()

    def sql(self) -> str:
        right = f"({self.right.sql()})" if isinstance(self.right, Joined) else self.right.sql()
        condition = f"\n    ON {' AND '.join(part.bare() for part in self.on)}" if self.on else ""
        if self.using:
            condition = f" USING ({', '.join(map(quoted, self.using))})"
        return f"{self.left.sql()}\n  {self.kind} JOIN {right}{condition}"


@dataclass(frozen=True)
class Item:
    """A column of a result."""

    value: Expr
    name: str


@dataclass(frozen=True)
class Group:
    """GROUP BY: `way` is empty, or one of ROLLUP, CUBE and GROUPING SETS."""

    keys: tuple[Expr, ...]
    way: str = ""

    def sql(self) -> str:
        keys = ", ".join(key.sql() for key in self.keys)
        if self.way == "GROUPING SETS":
            keys = f"({keys}), ({self.keys[0].sql()}), ()"
        return f"{self.way} ({keys})" if self.way else keys


@dataclass(frozen=True)
class Select:
    """A query without set operations. A group without keys aggregates all rows."""

    items: tuple[Item, ...]
    source: Source
    where: tuple[Expr, ...] = ()
    group: Group | None = None
    having: tuple[Expr, ...] = ()
    distinct: bool = False
    hints: tuple[str, ...] = ()

    def sql(self) -> str:
        hints = f"/*+ {', '.join(self.hints)} */ " if self.hints else ""
        lines = [f"SELECT {hints}{'DISTINCT ' * self.distinct}{', '.join(map(_item, self.items))}"]
        lines.append(f"FROM {self.source.sql()}")
        if self.where:
            lines.append(f"WHERE {' AND '.join(part.bare() for part in self.where)}")
        if self.group is not None and self.group.keys:
            lines.append(f"GROUP BY {self.group.sql()}")
        if self.having:
            lines.append(f"HAVING {' AND '.join(part.bare() for part in self.having)}")
        return "\n".join(lines)


def _item(item: Item) -> str:
    return item.value.sql() if item.value.text == "*" else f"{item.value.bare()} AS {quoted(item.name)}"


@dataclass(frozen=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT, ALL or not."""

    word: str
    left: Query
    right: Query

    def sql(self) -> str:
        return f"({self.left.sql()})\n{self.word}\n({self.right.sql()})"


@dataclass(frozen=True)
class With:
    """Common table expressions before a query."""

    parts: tuple[tuple[str, Query], ...]
    body: Query

    def sql(self) -> str:
        parts = ",\n".join(f"{name} AS (\n{query.sql()})" for name, query in self.parts)
        return f"WITH {parts}\n{self.body.sql()}"


@dataclass(frozen=True)
class Ordered:
    """ORDER BY, with LIMIT and OFFSET if they are not None. `keys` are positions of columns with their direction."""

    body: Query
    keys: tuple[str, ...]
    limit: int | None = None
    offset: int | None = None

    def sql(self) -> str:
        tail = f"\nORDER BY {', '.join(self.keys)}"
        tail += f" LIMIT {self.limit}" * (self.limit is not None) + f" OFFSET {self.offset}" * (self.offset is not None)
        inside = self.body.sql()
        return (f"SELECT * FROM (\n{inside})" if isinstance(self.body, SetOperation | With) else inside) + tail


Source = TableSource | Derived | Joined
Query = Select | SetOperation | With | Ordered
Node = Expr | Query


def parts(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a node that contain nodes or tuples, by name."""
    for field in fields(node):
        value = getattr(node, field.name)
        if is_dataclass(value) or isinstance(value, tuple):
            yield field.name, value


def walk(node: Any) -> Iterator[Any]:
    """Yield a node and all of its descendants."""
    if is_dataclass(node):
        yield node
        for _, value in parts(node):
            yield from walk(value)
    elif isinstance(node, tuple):
        for value in node:
            yield from walk(value)


def changed(node: Any, name: str, value: Any) -> Any:
    """Return a copy of a node with one field replaced."""
    return replace(node, **{name: value})
