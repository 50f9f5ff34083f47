"""The first rows of a task in some order: Spark's own operator above takes the first of all tasks'.

    rows ──▶ first column ──▶ before the bound? ──▶ other columns ──▶ before it? ──▶ payload ──▶ held
               of the order                          of the order                                 │
                                                              twice as many as are asked for:     ▼
                                                   the last of the first is the new bound, others go

As Spark takes the first of what comes, more may leave than are asked for: where memory is short, the rows that are held
leave. The bound stays: as many rows as are asked for are not behind it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from threading import Lock

import numpy as np
import pyarrow as pa

from sparkext.plans.operator_budget import OperatorBudget
from sparkext.plans.output_size import FINAL_OUTPUT_COPIES
from sparkext.plans.top import OrderedBy, Top
from sparkext.rows.morsels import within_bytes
from sparkext.rows.row_order import Bound, Part, Rows, compared, first_rows, parts_of
from sparkext.rows.row_set import RowSet
from sparkext.worker.sinks.gathered_rows import GatheredRows

LEAST_BYTES = 1 << 20
"""Rows that take no more stay, however little memory there is."""
MOST_BYTES = 1 << 30
"""Rows that take more leave: the strings of a column are put into one array, which holds up to 2 GiB."""


class TopRows:
    """Emits record batches of the rows that are first, and of some others; `payload` makes them.

    Raises
    ------
    SchemaMismatchError
        A column is not what was declared.
    """

    copies = FINAL_OUTPUT_COPIES

    def __init__(self, top: Top, payload: GatheredRows) -> None:
        """Start without rows."""
        self._count = top.count
        self._order = top.order
        self._payload = payload
        self._looked_at = [payload.outputs[by.output] for by in top.order]
        self.row_bytes = payload.row_bytes
        self._turn = Lock()
        self._hold([])
        self._bound: Bound | None = None

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Hold those of these rows that may be first; emit rows where memory is short."""
        start = 0
        while start < rows.length:
            most = budget.next()
            started = time.perf_counter()
            piece = rows.next_piece(start, most.rows, self._looked_at, most.bytes)
            start += piece.length
            candidates = self._candidates(piece)
            budget.observe(piece.length, 0)
            budget.spent_since(started)
            for some in candidates.pieces(self._payload.outputs, most.bytes) if candidates.length else ():
                started = time.perf_counter()
                batch = self._payload.batch(some)
                with self._turn:
                    leaving = self._entered(batch, budget)
                budget.spent_since(started)
                yield from self._emitted(leaving, budget)

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Emit the rows that are held, now that no others come before them."""
        started = time.perf_counter()
        self._reduce()
        budget.spent_since(started)
        yield from self._emitted(self._held, budget)

    def _candidates(self, rows: RowSet) -> RowSet:
        """Return those that come before the bound, and of these no more than are asked for, whose last is the new one.

        They are picked even where all are: what is held must be a copy, as the columns of a morsel go with it.
        """
        bound, looked_at = self._bound, self._order
        kept = rows
        if bound is not None:
            first = self._parts(rows, looked_at[:1])
            before, equal = compared(first, bound[: len(first)])
            kept = rows.picked(np.flatnonzero(before if len(looked_at) == 1 else before | equal))
            if kept.length and len(looked_at) > 1:
                kept = kept.picked(np.flatnonzero(compared(self._parts(kept, looked_at), bound)[0]))
        if kept.length >= self._count:  # of which so many stay, or leave, so what is behind them need not
            first_of_all, self._bound = first_rows(self._parts(kept, looked_at), self._count)
            kept = kept.picked(first_of_all)
        return kept if kept is not rows else rows.picked(np.arange(rows.length))

    def _parts(self, rows: RowSet, order: Sequence[OrderedBy]) -> list[Part]:
        columns = (self._payload.column(rows, by.output) for by in order)
        return _ordered(columns, order)

    def _entered(self, batch: pa.RecordBatch, budget: OperatorBudget) -> list[pa.RecordBatch]:
        """Hold a batch's rows; return batches that are to leave."""
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        most = min(MOST_BYTES, max(LEAST_BYTES, budget.usable_bytes()))
        is_due = self._bound is None or self._rows > 2 * self._count or self._bytes > most
        if is_due and self._bytes <= MOST_BYTES:
            self._reduce()
        if self._bytes <= most:
            return []
        leaving = self._held
        self._hold([])
        return leaving

    def _hold(self, batches: list[pa.RecordBatch]) -> None:
        self._held = batches
        self._rows = sum(batch.num_rows for batch in batches)
        self._bytes = sum(batch.nbytes for batch in batches)

    def _reduce(self) -> None:
        """Drop all rows that are held but the first, the last of which is a bound then."""
        if self._rows < self._count:
            return
        columns = (pa.concat_arrays([batch.column(by.output) for batch in self._held]) for by in self._order)
        rows, self._bound = first_rows(_ordered(columns, self._order), self._count)
        if rows.size < self._rows:
            self._hold(_merged(_taken(self._held, rows)))

    def _emitted(self, batches: Sequence[pa.RecordBatch], budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            start = 0
            while start < batch.num_rows:
                most = budget.next()
                started = time.perf_counter()
                piece = next(within_bytes(batch.slice(start, most.rows), most.bytes))
                budget.observe(0, piece.num_rows, piece.nbytes)
                start += piece.num_rows
                budget.spent_since(started)
                yield piece


def _ordered(columns: Iterator[pa.Array], order: Sequence[OrderedBy]) -> list[Part]:
    return [
        part
        for column, by in zip(columns, order, strict=True)
        for part in parts_of(column, by.ascending, by.nulls_first)
    ]


def _taken(batches: Sequence[pa.RecordBatch], rows: Rows) -> Iterator[pa.RecordBatch]:
    """Yield copies of these rows, ascending numbers over all batches."""
    start = 0
    for batch in batches:
        within = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + batch.num_rows)]
        if within.size:
            yield batch.take(pa.array(within - start))
        start += batch.num_rows


def _merged(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Put neighbours together; nested columns of files may differ in the names of their elements."""
    return [pa.concat_batches(list(alike)) for _, alike in groupby(batches, key=lambda batch: batch.schema)]
