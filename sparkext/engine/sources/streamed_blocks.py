"""Rows streamed to a partition in blocks, and the cost of each bucket."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from sparkext.kernels.columns.gather import Column
from sparkext.plans.shuffle.load_table import BucketReport
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.morsels import form_morsels
from sparkext.rows.row_set import RowSet
from sparkext.shuffle.packed_rows import RowUnpacker
from sparkext.shuffle.streamed import TaskFiles

_REPORT_SECONDS = 0.1


class ReceivedItem(NamedTuple):
    """Received data: a block of probe rows, or the locations of build rows (a text) for the group of a bucket."""

    bucket: int
    is_build: bool
    content: pa.Buffer


def read_received(batches: Iterable[pa.RecordBatch]) -> Iterator[ReceivedItem]:
    """Yield the received data one by one, without copies."""
    for batch in batches:
        buckets, build, contents = batch.columns
        for number in range(batch.num_rows):
            yield ReceivedItem(buckets[number].as_py(), build[number].as_py(), contents[number].as_buffer())


class BucketClock:
    """Measures the rows of each bucket, and the CPU seconds that this thread spends on them, without waiting times.

    It writes the measurements to the task's files at intervals of at least `_REPORT_SECONDS`.
    """

    def __init__(self, files: TaskFiles) -> None:
        """Begin without a bucket."""
        self._files = files
        self._report = BucketReport()
        self._bucket: int | None = None
        self._since = time.thread_time()
        self._last = time.monotonic()

    def turn(self, bucket: int | None) -> None:
        """Attribute this thread's time to a bucket from now on, or to none (None)."""
        now = time.thread_time()
        if self._bucket is not None:
            self._report.spend(self._bucket, now - self._since)
        self._bucket, self._since = bucket, now
        if time.monotonic() - self._last >= _REPORT_SECONDS:
            self.write_report()

    def count(self, rows: int) -> None:
        """Count rows of the current bucket."""
        assert self._bucket is not None, "rows are of a bucket"
        self._report.count(self._bucket, rows)

    def write_report(self) -> None:
        """Write the measurements to the task's files."""
        self._files.write_report(self._report)
        self._last = time.monotonic()


class StreamedBlocks:
    """A sequence of blocks for one group of buckets."""

    def __init__(self, blocks: Iterable[ReceivedItem], rows: RowUnpacker, max_rows: int, clock: BucketClock) -> None:
        """Bind the blocks to their reader and to the clock."""
        self._blocks = blocks
        self._rows = rows
        self._max_rows = max_rows
        self._clock = clock

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield the rows of each block in morsels."""
        for block in self._blocks:
            self._clock.turn(block.bucket)
            metrics.batches_in += 1
            for morsel in form_morsels([self._rows.unpack(block.content)], self._max_rows):
                metrics.morsels += 1
                self._clock.count(morsel.num_rows)
                yield RowSet.of_morsel([Column.of(column) for column in morsel.columns], morsel.num_rows)
        self._clock.turn(None)

    def confirm(self) -> None:
        """Do nothing: received rows do not change."""
