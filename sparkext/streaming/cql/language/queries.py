"""Registered streams and queries with resolved names and types, as engines run them.

Formulas are expressions of `plans.expressions.expression`. In a select, column c of source s refers to column c of
input s. After an aggregation there is one source: the grouping columns, followed by the aggregates. Arithmetic without
a result in its type is null, as in Spark's `try_add` and `try_divide`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from sparkext.plans.expressions.expression import Expression
from sparkext.plans.expressions.key_types import KeyType
from sparkext.streaming.cql.language.syntax import Formula, Position

MOST_COLUMNS = 64
"""Maximum number of columns of a row: its null bits are one word of 64 bits."""

EPSILON = 0
"""The delay that is shorter than any unit of time."""


def spell_delay(delay: int) -> str:
    """Return the length of a delay as text."""
    return "ε" if delay == EPSILON else f"{Decimal(delay).scaleb(-6).normalize():f} s"


@dataclass(frozen=True)
class RelationColumn:
    """A column of a stream or a relation. `computed`: the formula of a hidden column, see module `computed`."""

    name: str
    type: KeyType
    nullable: bool
    computed: Formula | None = None


@dataclass(frozen=True)
class BoundStream:
    """A registered stream. Computed columns follow the registered ones."""

    name: str
    columns: tuple[RelationColumn, ...]

    @property
    def registered(self) -> tuple[RelationColumn, ...]:
        """The columns with which it was registered."""
        return tuple(column for column in self.columns if column.computed is None)

    @property
    def computed(self) -> tuple[RelationColumn, ...]:
        """The columns that Spark computes."""
        return self.columns[len(self.registered) :]


@dataclass(frozen=True)
class BoundWindow:
    """A window as in `syntax.Window`, with the indexes of its partitioning columns."""

    kind: str
    amount: int = 0
    slide: int = 0
    partition: tuple[int, ...] = ()

    def spelled(self, columns: tuple[RelationColumn, ...]) -> str:
        """Spell it as in CQL, with times in µs; `columns`: the columns of the stream."""
        if self.kind in ("now", "unbounded"):
            return f"[{self.kind.title()}]"
        slide = f" Slide {self.slide}" if self.slide else ""
        if self.kind == "range":
            return f"[Range {self.amount} us{slide + ' us' if slide else ''}]"
        names = ", ".join(columns[position].name for position in self.partition)
        partition = f"Partition By {names} " if names else ""
        return f"[{partition}Rows {self.amount}{slide}]"


@dataclass(frozen=True)
class Input:
    """An input of a select: a stream with a window, or a relation, with its columns."""

    name: str
    window: BoundWindow | None
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Aggregate:
    """count, sum, avg, min or max of all or of distinct values; count without an argument counts rows."""

    function: str
    argument: Expression | None
    distinct: bool
    type: KeyType


@dataclass(frozen=True)
class SelectPlan:
    """The rows of the join of all inputs that fulfil all conditions.

    `group`: the grouping expressions, None without groups and aggregates. `having` and `outputs` are expressions over
    the grouping columns and the `aggregates`. Without input rows there is no group, even if `group` is empty.
    """

    inputs: tuple[Input, ...]
    where: tuple[Expression, ...]
    group: tuple[Expression, ...] | None
    aggregates: tuple[Aggregate, ...]
    having: Expression | None
    outputs: tuple[Expression, ...]
    distinct: bool
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class SetPlan:
    """`op` is union, except or intersect. `all`: the result is a bag, otherwise a set."""

    op: str
    all: bool
    left: Plan
    right: Plan
    columns: tuple[RelationColumn, ...]


Plan: TypeAlias = SelectPlan | SetPlan


@dataclass(frozen=True)
class BoundQuery:
    """A registered query. `operator`, `period`, `delay` (`EPSILON`: ε) and `recursive` are as in `RegisteredQuery`.

    The result of a recursive query is the least fixpoint of its relation.
    """

    name: str
    operator: str | None
    period: int | None
    plan: Plan
    delay: int | None
    at: Position
    recursive: bool = False

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        """The columns of its result."""
        return self.plan.columns

    def selects(self) -> Iterator[SelectPlan]:
        """Yield the selects of its plan, from left to right."""
        return _walk_selects(self.plan)

    def reads(self) -> tuple[str, ...]:
        """Return the names of the streams and queries that it reads, without duplicates."""
        return tuple(dict.fromkeys(read.name for select in self.selects() for read in select.inputs))


def _walk_selects(plan: Plan) -> Iterator[SelectPlan]:
    if isinstance(plan, SetPlan):
        yield from _walk_selects(plan.left)
        yield from _walk_selects(plan.right)
    else:
        yield plan
