"""A sink of a task's first n rows in some order (n: `top.count`). Spark's operator selects from the rows of all tasks.

    rows ──▶ first column ──▶ before the bound? ──▶ other columns ──▶ before it? ──▶ payload ──▶ held
               of the order                          of the order                                 │
                                                              more than 2 n rows are held:        ▼
                                                   row n becomes the new bound, rows after it are dropped

As Spark selects the first rows, a task may emit more than n rows: if memory is short, the held rows are emitted. The
bound stays valid, as at least n rows are not after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from threading import Lock

import numpy as np
import pyarrow as pa

from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.sinks.gathered_rows import GatheredRows
from sparkext.engine.sinks.pieces import emit_pieces, split_input
from sparkext.plans.adaptive.output_size import FINAL_OUTPUT_COPIES, Budget
from sparkext.plans.pipeline.top import OrderColumn, Top
from sparkext.rows.morsels import split_by_bytes
from sparkext.rows.row_order import Bound, OrderPart, Rows, compare_to_bound, select_first_rows, split_into_parts
from sparkext.rows.row_set import RowSet

LEAST_BYTES = 1 << 20
"""Rows up to this size stay in memory, however little is free."""
MOST_BYTES = 1 << 30
"""Rows beyond this size are emitted: the strings of a column are combined into one array, which holds up to 2 GiB."""


class TopRows:
    """Emits record batches that contain the first rows, and possibly more rows; `payload` gathers the rows.

    Raises
    ------
    SchemaMismatchError
        A column does not have the declared type.
    """

    copies = FINAL_OUTPUT_COPIES

    def __init__(self, top: Top, payload: GatheredRows) -> None:
        """Begin without rows."""
        self._count = top.count
        self._order = top.order
        self._payload = payload
        self._order_columns = [payload.outputs[order_column.output] for order_column in top.order]
        self.row_bytes = payload.row_bytes
        self._turn = Lock()
        self._hold([])
        self._bound: Bound | None = None

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Hold the rows that may be among the first; emit rows if memory is short."""
        for piece, most in split_input(rows, self._order_columns, budget):
            started = time.perf_counter()
            candidates = self._candidates(piece)
            budget.observe(piece.length, 0)
            budget.add_time_since(started)
            for part in candidates.pieces(self._payload.outputs, most.bytes) if candidates.length else ():
                started = time.perf_counter()
                batch = self._payload.batch(part)
                with self._turn:
                    outgoing = self._add_rows(batch, budget)
                budget.add_time_since(started)
                yield from self._emit(outgoing, budget)

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Emit the held rows that are among the first."""
        started = time.perf_counter()
        self._reduce()
        budget.add_time_since(started)
        yield from self._emit(self._held, budget)

    def _candidates(self, rows: RowSet) -> RowSet:
        """Return the rows before the bound, at most n of them. If there are n, the last of them is the new bound.

        The result is always a copy: held rows must not refer to the columns of a morsel.
        """
        bound, order = self._bound, self._order
        candidates = rows
        if bound is not None:
            first = self._parts(rows, order[:1])
            before, equal = compare_to_bound(first, bound[: len(first)])
            candidates = rows.picked(np.flatnonzero(before if len(order) == 1 else before | equal))
            if candidates.length and len(order) > 1:
                candidates = candidates.picked(
                    np.flatnonzero(compare_to_bound(self._parts(candidates, order), bound)[0])
                )
        if candidates.length >= self._count:  # all n rows are held or emitted, so rows after them are not needed
            first_rows, self._bound = select_first_rows(self._parts(candidates, order), self._count)
            candidates = candidates.picked(first_rows)
        return candidates if candidates is not rows else rows.picked(np.arange(rows.length))

    def _parts(self, rows: RowSet, order: Sequence[OrderColumn]) -> list[OrderPart]:
        columns = (self._payload.column(rows, order_column.output) for order_column in order)
        return _collect_parts(columns, order)

    def _add_rows(self, batch: pa.RecordBatch, budget: OperatorBudget) -> list[pa.RecordBatch]:
        """Hold the rows of a batch; return the batches to emit."""
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        most = min(MOST_BYTES, max(LEAST_BYTES, budget.usable_bytes()))
        is_due = self._bound is None or self._rows > 2 * self._count or self._bytes > most
        if is_due and self._bytes <= MOST_BYTES:
            self._reduce()
        if self._bytes <= most:
            return []
        outgoing = self._held
        self._hold([])
        return outgoing

    def _hold(self, batches: list[pa.RecordBatch]) -> None:
        self._held = batches
        self._rows = sum(batch.num_rows for batch in batches)
        self._bytes = sum(batch.nbytes for batch in batches)

    def _reduce(self) -> None:
        """Drop the held rows after the first n; row n becomes the new bound."""
        if self._rows < self._count:
            return
        columns = (
            pa.concat_arrays([batch.column(order_column.output) for batch in self._held])
            for order_column in self._order
        )
        rows, self._bound = select_first_rows(_collect_parts(columns, self._order), self._count)
        if rows.size < self._rows:
            self._hold(_merge_batches(_take_rows(self._held, rows)))

    def _emit(self, batches: Sequence[pa.RecordBatch], budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from emit_pieces(batch.num_rows, partial(_slice_batch, batch), budget)


def _slice_batch(batch: pa.RecordBatch, start: int, most: Budget) -> pa.RecordBatch:
    return next(split_by_bytes(batch.slice(start, most.rows), most.bytes))


def _collect_parts(columns: Iterator[pa.Array], order: Sequence[OrderColumn]) -> list[OrderPart]:
    return [
        part
        for column, order_column in zip(columns, order, strict=True)
        for part in split_into_parts(column, order_column.ascending, order_column.nulls_first)
    ]


def _take_rows(batches: Sequence[pa.RecordBatch], rows: Rows) -> Iterator[pa.RecordBatch]:
    """Yield copies of these rows; `rows` are ascending row numbers over all batches."""
    start = 0
    for batch in batches:
        batch_rows = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + batch.num_rows)]
        if batch_rows.size:
            yield batch.take(pa.array(batch_rows - start))
        start += batch.num_rows


def _merge_batches(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Concatenate consecutive batches of equal schema: nested columns of files may have different element names."""
    return [pa.concat_batches(list(alike)) for _, alike in groupby(batches, key=lambda batch: batch.schema)]
