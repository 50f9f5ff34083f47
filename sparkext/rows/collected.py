"""Rows that several threads read: kept in memory while they are small compared with free memory, else in files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from sparkext.memory.freed import release_memory
from sparkext.rows.morsels import MAX_MORSEL_BYTES
from sparkext.storage.paced_writes import PacedWriter
from sparkext.storage.spill import Place, SpillBuffer

_READING = 3
"""Peak memory of reading rows, as a multiple of their final size: Arrow doubles buffers as they grow."""


class CollectedRows:
    """Gathers batches from several threads into a table in the order of their positions.

    `check(rows, bytes)`: called with the totals so far; may raise. `most()`: maximum bytes to keep in memory, None for
    no limit; called for each batch. Above this limit all batches are written to files in `folder`.
    """

    def __init__(
        self,
        check: Callable[[int, int], None],
        most: Callable[[], int | None] = lambda: None,
        folder: Path | None = None,
    ) -> None:
        """Begin without rows."""
        self._check = check
        self._most = most
        self._lock = threading.Condition()
        self._batches = SpillBuffer[pa.RecordBatch](most, folder, _write_batch, _read_batch, moves_all=True)
        self._rows = self._bytes = self._readers = 0
        self._largest: int | None = None

    def __enter__(self) -> CollectedRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._batches.close()

    @property
    def spilled(self) -> bool:
        """Whether the rows are in files."""
        return self._batches.spilled

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until there is memory for reading rows, in addition to the rows that other threads are reading."""
        with self._lock:
            self._lock.wait_for(self._may_read)
            self._readers += 1
        try:
            yield
        finally:
            if self.spilled:
                release_memory()
            with self._lock:
                self._readers -= 1
                self._lock.notify_all()

    def add(self, position: Place, batch: pa.RecordBatch) -> None:
        """Store one more batch."""
        with self._lock:
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            self._largest = max(self._largest or 0, batch.nbytes)
            self._lock.notify_all()
            self._check(self._rows, self._bytes)
        self._batches.add(position, batch, batch.nbytes)

    def _may_read(self) -> bool:
        """One thread may always read. Until the first batch has been read, batches are assumed to have maximum size."""
        most = self._most() if self._readers else None
        largest = MAX_MORSEL_BYTES if self._largest is None else self._largest
        return most is None or (self._readers + 1) * largest * _READING <= most

    def table(self, schema: pa.Schema) -> pa.Table:
        """Return all rows in order; rows in files are memory-mapped. Call this once."""
        return pa.Table.from_batches(self._batches.values(), schema)


def _write_batch(stream: PacedWriter, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)


def _read_batch(content: pa.Buffer) -> pa.RecordBatch:
    with pa.ipc.open_stream(content) as reader:
        return reader.read_next_batch()
