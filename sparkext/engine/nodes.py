"""The nodes of a pipeline: one source, operators and one sink. Each node has its own file.

              rows               rows              rows             record batches
    source ─────────▶ operator ─────────▶ operator ─────────▶ sink ─────────▶ to the JVM
                         ▲                   ▲                 ▲
                       budget              budget            budget     requested before each output: its maximum size

Rows are passed as row sets: row ids without payload. A join adds one source to the rows that it receives; a filter
emits fewer rows. The sink materialises row ids as record batches, which leave the task.

    process     called for each row set of the input; yields outputs, each within a budget requested just before
    finish      called once, after all rows have been processed and all previous operators have finished

In `finish`, a join emits its unmatched build rows, and a sink of groups emits its complete table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from sparkext.engine.operator_budget import OperatorBudget
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet


class Source(Protocol):
    """Produces the rows of a pipeline."""

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield the rows in morsels, none of them empty; count the input in `metrics`."""
        ...

    def confirm(self) -> None:
        """Check that the data read so far is valid. Call this before any result derived from it is emitted."""
        ...


class Operator(Protocol):
    """Transforms row sets. Several threads of a task may call `process` concurrently."""

    @property
    def row_bytes(self) -> float:
        """Bytes per output row, as estimated before the operator runs."""
        ...

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
        """Yield the output for these rows. Each output fits the budget that `budget.next()` returned just before."""
        ...

    def finish(self, budget: OperatorBudget) -> Iterator[RowSet]:
        """Yield the output that depends on the complete input, within the same budgets."""
        ...


class Sink(Protocol):
    """Consumes the rows of a pipeline. Several threads of a task may call `process` concurrently."""

    @property
    def row_bytes(self) -> float:
        """Bytes per row in this sink, as estimated before it runs."""
        ...

    @property
    def copies(self) -> int:
        """Number of copies of an output that exist in memory at the same time."""
        ...

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Add these rows; yield the batches that can be emitted now, within the budget."""
        ...

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Yield the remaining batches, after all rows have been added."""
        ...
