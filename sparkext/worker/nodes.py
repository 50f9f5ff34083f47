"""What a pipeline is made of: a source, operators and a sink, each a file of its own.

              rows               rows              rows             record batches
    source ─────────▶ operator ─────────▶ operator ─────────▶ sink ─────────▶ to the JVM
                         ▲                   ▲                 ▲
                       budget              budget            budget     before each output: how large it may be

Rows travel as row sets: ids of rows, not payload. An operator emits rows of one source more than it was given (a join),
or fewer rows (a filter). A sink is where rows stop being ids: what it emits leaves the task.

    process     called with rows as often as there are some; yields outputs, each within a budget asked for just before
    finish      called once, when all rows have been processed and every operator before has finished

A join emits the build rows that nothing matched when it finishes; a table of groups, or an index, is complete then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from sparkext.plans.operator_budget import OperatorBudget
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet


class Source(Protocol):
    """Where a pipeline's rows come from."""

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield the rows, a morsel at a time, none of them empty; count in `metrics` what came."""
        ...

    def confirm(self) -> None:
        """Make sure that what has been read so far is sound. To be called before anything made of it is emitted."""
        ...


class Operator(Protocol):
    """What makes other rows of rows. Threads of a task may call `process` at the same time."""

    @property
    def row_bytes(self) -> float:
        """What a row of its output takes, as far as that is known before it runs."""
        ...

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
        """Yield what it makes of these rows, never more at a time than `budget.next()` said just before."""
        ...

    def finish(self, budget: OperatorBudget) -> Iterator[RowSet]:
        """Yield what it makes of all rows together, in the same way."""
        ...


class Sink(Protocol):
    """Where a pipeline ends. Threads of a task may call `process` at the same time."""

    @property
    def row_bytes(self) -> float:
        """What a row takes here, as far as that is known before it runs."""
        ...

    @property
    def copies(self) -> int:
        """How often an output lies in memory at a time."""
        ...

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Take these rows in; yield what is to leave the task already, within the budget."""
        ...

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Yield the rest, now that all rows have been taken in."""
        ...
