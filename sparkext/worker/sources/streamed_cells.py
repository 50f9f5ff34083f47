"""Rows that stream to a slot, cell by cell, and what each line of them costs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from sparkext.exchange.packed_rows import RowUnpacker
from sparkext.exchange.streamed import TaskFiles
from sparkext.kernels.gather import Column
from sparkext.plans.board import Told
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.morsels import MAX_MORSEL_BYTES, morsels
from sparkext.rows.row_set import RowSet

_TELL_SECONDS = 0.1


class Arriving(NamedTuple):
    """What has come for a line: a cell of its probe rows, or, for a group of lines, where build rows lie (a text)."""

    line: int
    is_build: bool
    content: pa.Buffer


def arriving(batches: Iterable[pa.RecordBatch]) -> Iterator[Arriving]:
    """Yield what has come, one by one, without a copy."""
    for batch in batches:
        lines, build, contents = batch.columns
        for number in range(batch.num_rows):
            yield Arriving(lines[number].as_py(), build[number].as_py(), contents[number].as_buffer())


class LineClock:
    """The rows that came of each line, and the seconds that this thread has worked for them; waiting is not work.

    It tells them now and then.
    """

    def __init__(self, files: TaskFiles) -> None:
        """Begin with no line."""
        self._files = files
        self.told = Told()
        self._line: int | None = None
        self._since = time.thread_time()
        self._last = time.monotonic()

    def turn(self, line: int | None) -> None:
        """From here on this thread works for another line; for none, what it does counts for none."""
        now = time.thread_time()
        if self._line is not None:
            self.told.spend(self._line, now - self._since)
        self._line, self._since = line, now
        if time.monotonic() - self._last >= _TELL_SECONDS:
            self.tell()

    def count(self, rows: int) -> None:
        """Count rows of the line that it is the turn of."""
        assert self._line is not None, "rows are of a line"
        self.told.count(self._line, rows)

    def tell(self) -> None:
        """Leave them where the task finds them."""
        self._files.tell(self.told)
        self._last = time.monotonic()


class StreamedCells:
    """Cells that come one after the other for one group of lines."""

    def __init__(self, cells: Iterable[Arriving], rows: RowUnpacker, max_rows: int, clock: LineClock) -> None:
        """Bind them to what reads them."""
        self._cells = cells
        self._rows = rows
        self._max_rows = max_rows
        self._clock = clock

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield the rows of each cell, a morsel at a time."""
        for cell in self._cells:
            self._clock.turn(cell.line)
            metrics.batches_in += 1
            batches = self._rows.batches([cell.content], self._max_rows, MAX_MORSEL_BYTES)
            for morsel in morsels(batches, self._max_rows):
                metrics.morsels += 1
                self._clock.count(morsel.num_rows)
                yield RowSet.of_morsel([Column.of(column) for column in morsel.columns], morsel.num_rows)
        self._clock.turn(None)

    def confirm(self) -> None:
        """Do nothing: what has arrived does not change."""
