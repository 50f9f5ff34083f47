"""Registered streams and queries with their names looked up and their types found: what an engine runs.

Formulas are expressions of `plans.expression`. In a select, column c of source s is that of its s-th input; behind an
aggregation there is one source, the columns that it is grouped by and the aggregates behind them. Arithmetic that has
no result in its type is null, as in Spark's `try_add` and `try_divide`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from sparkext.cql.syntax import Formula, Position
from sparkext.plans.expression import Expression
from sparkext.plans.key_types import KeyType

MOST_COLUMNS = 64
"""Of a row: as many bits tell which values are null."""

EPSILON = 0
"""The delay that is shorter than any unit of time."""


def spelled_delay(delay: int) -> str:
    """Return how long a delay is."""
    return "ε" if delay == EPSILON else f"{Decimal(delay).scaleb(-6).normalize():f} s"


@dataclass(frozen=True)
class Column:
    """A column of a stream or a relation. `computed`: what it is of others, if nobody sees it (`cql.computed`)."""

    name: str
    type: KeyType
    nullable: bool
    computed: Formula | None = None


@dataclass(frozen=True)
class BoundStream:
    """A registered stream. Columns that are computed come last."""

    name: str
    columns: tuple[Column, ...]

    @property
    def registered(self) -> tuple[Column, ...]:
        """The columns that it is registered with."""
        return tuple(column for column in self.columns if column.computed is None)

    @property
    def computed(self) -> tuple[Column, ...]:
        """Those that Spark computes."""
        return self.columns[len(self.registered) :]


@dataclass(frozen=True)
class BoundWindow:
    """As `syntax.Window`, with the places of the columns that it is partitioned by."""

    kind: str
    amount: int = 0
    slide: int = 0
    partition: tuple[int, ...] = ()

    def spelled(self, columns: tuple[Column, ...]) -> str:
        """Spell it as in CQL, times in µs; `columns` are those of the stream."""
        if self.kind in ("now", "unbounded"):
            return f"[{self.kind.title()}]"
        slide = f" Slide {self.slide}" if self.slide else ""
        if self.kind == "range":
            return f"[Range {self.amount} us{slide + ' us' if slide else ''}]"
        names = ", ".join(columns[place].name for place in self.partition)
        partition = f"Partition By {names} " if names else ""
        return f"[{partition}Rows {self.amount}{slide}]"


@dataclass(frozen=True)
class Input:
    """What a select reads: a stream through a window, or a relation. `columns` are those of it."""

    name: str
    window: BoundWindow | None
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Aggregate:
    """count (of all rows without an argument), sum, avg, min or max, of distinct values or all."""

    function: str
    argument: Expression | None
    distinct: bool
    type: KeyType


@dataclass(frozen=True)
class SelectPlan:
    """Rows of all inputs that fulfil all conditions.

    `group`: what they are grouped by, None without aggregates; then `aggregates` and `having` (over the group), and
    `outputs` over the group. Without rows there is no group, not even one of all rows.
    """

    inputs: tuple[Input, ...]
    where: tuple[Expression, ...]
    group: tuple[Expression, ...] | None
    aggregates: tuple[Aggregate, ...]
    having: Expression | None
    outputs: tuple[Expression, ...]
    distinct: bool
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class SetPlan:
    """`op` is union, except or intersect; rows count if `all`, else what is equal is one."""

    op: str
    all: bool
    left: Plan
    right: Plan
    columns: tuple[Column, ...]


Plan: TypeAlias = SelectPlan | SetPlan


@dataclass(frozen=True)
class BoundQuery:
    """A registered query. `operator`, `period`, `delay` (`EPSILON`: ε) and `recursive` are as in `RegisteredQuery`.

    What is recursive is the least set of rows that its relation makes of itself.
    """

    name: str
    operator: str | None
    period: int | None
    plan: Plan
    delay: int | None
    at: Position
    recursive: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of its result."""
        return self.plan.columns

    def selects(self) -> Iterator[SelectPlan]:
        """Yield the selects that it is made of, from left to right."""
        return _selects(self.plan)

    def reads(self) -> tuple[str, ...]:
        """Return the names of what it reads, each once."""
        return tuple(dict.fromkeys(read.name for select in self.selects() for read in select.inputs))


def _selects(plan: Plan) -> Iterator[SelectPlan]:
    if isinstance(plan, SetPlan):
        yield from _selects(plan.left)
        yield from _selects(plan.right)
    else:
        yield plan
