"""The syntax tree of a CQL text: names are not resolved yet."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Position(NamedTuple):
    """The position at which a syntax element begins in the text: line and column, both from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        """Spell it for messages."""
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True)
class Name:
    """The name of a column, and the name of its source, if that is given."""

    of: str | None
    name: str
    at: Position

    def __str__(self) -> str:
        """Spell it as it is written."""
        return self.name if self.of is None else f"{self.of}.{self.name}"


@dataclass(frozen=True)
class Constant:
    """A value; `kind` is null, bool, integer, double, string, date or timestamp."""

    kind: str
    text: str
    at: Position


@dataclass(frozen=True)
class Operation:
    """An operator of SQL: `+ - * / % = <=> <> < <= > >= and or not negate is_null in`."""

    op: str
    args: tuple[Formula, ...]
    at: Position


@dataclass(frozen=True)
class Call:
    """A call of a function. `star`: `COUNT(*)`; `distinct`: `COUNT(DISTINCT x)`."""

    function: str
    args: tuple[Formula, ...]
    at: Position
    star: bool = False
    distinct: bool = False


@dataclass(frozen=True)
class Case:
    """CASE: pairs of a condition and its value, and the value of ELSE."""

    branches: tuple[tuple[Formula, Formula], ...]
    otherwise: Formula | None
    at: Position


@dataclass(frozen=True)
class Cast:
    """CAST to a type by its name."""

    value: Formula
    type: str
    at: Position


Formula: TypeAlias = Name | Constant | Operation | Call | Case | Cast


@dataclass(frozen=True)
class Window:
    """A window. `kind`: `now`, `range` (`amount` in µs), `unbounded` or `rows`. `slide`: in the same unit; 0: none.

    `partition`: the columns of PARTITION BY.
    """

    kind: str
    at: Position
    amount: int = 0
    slide: int = 0
    partition: tuple[Name, ...] = ()


@dataclass(frozen=True)
class FromItem:
    """A source in FROM: a stream with a window, or a relation."""

    name: str
    window: Window | None
    alias: str
    at: Position


@dataclass(frozen=True)
class Item:
    """A column of a result. `formula` is None for `*`: all columns of the source `of`, or of all sources."""

    formula: Formula | None
    alias: str | None
    of: str | None
    at: Position


@dataclass(frozen=True)
class Select:
    """SELECT."""

    distinct: bool
    items: tuple[Item, ...]
    sources: tuple[FromItem, ...]
    where: tuple[Formula, ...]
    group: tuple[Formula, ...]
    having: Formula | None
    at: Position


@dataclass(frozen=True)
class SetOperation:
    """`op` is union, except or intersect. `all`: the result is a bag, otherwise a set."""

    op: str
    all: bool
    left: Relation
    right: Relation
    at: Position


Relation: TypeAlias = Select | SetOperation


@dataclass(frozen=True)
class StreamColumn:
    """A column of a registered stream."""

    name: str
    type: str
    nullable: bool
    at: Position


@dataclass(frozen=True)
class RegisteredStream:
    """REGISTER STREAM."""

    name: str
    columns: tuple[StreamColumn, ...]
    at: Position


@dataclass(frozen=True)
class RegisteredQuery:
    """REGISTER QUERY. `operator` is istream, dstream or rstream, None for a relation; `period`: of rstream, in µs.

    `delay`: µs, 0 for ε, None without a delay. `recursive`: it may read itself at the same instant.
    """

    name: str
    operator: str | None
    period: int | None
    relation: Relation
    delay: int | None
    at: Position
    recursive: bool = False


@dataclass(frozen=True)
class Program:
    """A CQL text: its streams and queries in the order of registration."""

    streams: tuple[RegisteredStream, ...]
    queries: tuple[RegisteredQuery, ...]

    def part(self, names: Container[str]) -> Program:
        """Return the program without streams and queries of other names."""
        streams = tuple(stream for stream in self.streams if stream.name in names)
        return Program(streams, tuple(query for query in self.queries if query.name in names))
