"""Rows that several threads read: kept in memory while they are little beside what is free, else in files.

The files have no names, so that none is left however a process ends, and lie mapped: their pages are the system's to
take back. Each thread writes one of its own, and they are put in order when all have come.
"""

from __future__ import annotations

import mmap
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from sparkext.memory.address_space import mapping
from sparkext.memory.freed import release
from sparkext.rows.morsels import MAX_MORSEL_BYTES
from sparkext.storage.paced_writes import PacedWriter

Place = tuple[int, int]
"""Where a batch belongs among all of them."""

_READING = 3
"""Memory that it takes to read rows, as a multiple of what they take in the end: Arrow doubles buffers as they grow."""


class CollectedRows:
    """Gathers batches from several threads into a table in the order of their places.

    `check(rows, bytes)` is told what has come so far, and may raise. `most()`: bytes to keep in memory at most, None
    without limit, asked whenever a batch has come; what is more goes to files in `folder`.
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
        self._folder = folder
        self._lock = threading.Condition()
        self._kept: deque[tuple[Place, pa.RecordBatch]] = deque()
        self._rows = self._bytes = self._readers = 0
        self._largest: int | None = None
        self._files: dict[int, _RowFile] = {}
        self._open = ExitStack()
        self.spilled = False

    def __enter__(self) -> CollectedRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._open.close()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until there is memory to read some more rows beside those that other threads are reading."""
        with self._lock:
            self._lock.wait_for(self._has_room)
            self._readers += 1
        try:
            yield
        finally:
            if self.spilled:
                release()
            with self._lock:
                self._readers -= 1
                self._lock.notify_all()

    def add(self, place: Place, batch: pa.RecordBatch) -> None:
        """Keep one more batch."""
        with self._lock:
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            self._largest = max(self._largest or 0, batch.nbytes)
            self._lock.notify_all()
            self._check(self._rows, self._bytes)
            self._kept.append((place, batch))
            if not self.spilled:
                most = self._most()
                if most is None or self._bytes <= most:
                    return
                self.spilled = True
            moved, self._kept = self._kept, deque()
            file = self._file(batch.schema)
        del batch
        while moved:
            file.write(*moved.popleft())

    def _has_room(self) -> bool:
        """One thread may always read. Before the first rows have come they are taken for as large as they may be."""
        most = self._most() if self._readers else None
        largest = MAX_MORSEL_BYTES if self._largest is None else self._largest
        return most is None or (self._readers + 1) * largest * _READING <= most

    def table(self, schema: pa.Schema) -> pa.Table:
        """Return all rows; those in files are mapped."""
        found = list(self._kept)
        for file in self._files.values():
            found.extend(file.batches())
        found.sort(key=lambda placed: placed[0])
        return pa.Table.from_batches([batch for _, batch in found], schema)

    def _file(self, schema: pa.Schema) -> _RowFile:
        """Return the file of this thread."""
        thread = threading.get_ident()
        if thread not in self._files:
            self._files[thread] = _RowFile(self._open.enter_context(unnamed_file(self._folder)), schema)
        return self._files[thread]


class _RowFile:
    """An Arrow stream in a file without a name."""

    def __init__(self, stream: PacedWriter, schema: pa.Schema) -> None:
        self._stream = stream
        self._writer = pa.ipc.new_stream(stream, schema)
        self._places: list[Place] = []

    def write(self, place: Place, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self._places.append(place)

    def batches(self) -> Iterator[tuple[Place, pa.RecordBatch]]:
        self._writer.close()
        with pa.ipc.open_stream(mapped(self._stream)) as reader:
            yield from zip(self._places, reader, strict=True)


def unnamed_file(folder: Path | None) -> PacedWriter:
    """Open a new file on the disk of this folder, which is gone as soon as it is neither open nor mapped."""
    return PacedWriter(tempfile.TemporaryFile(dir=folder, buffering=0))


def mapped(stream: PacedWriter) -> pa.Buffer:
    """Map all that was written to a file, which may be closed then."""
    stream.sync()
    with mapping("what was read of a build side"):
        return pa.py_buffer(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ))
