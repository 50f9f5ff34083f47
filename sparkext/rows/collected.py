"""Rows that several threads read: kept in memory while they are small compared with free memory, else spilled to files.

The files have no names, so that none remains, however a process ends. They are memory-mapped, so that the system can
reclaim their pages. Each thread writes its own file; batches are ordered after all have been read.
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

from sparkext.memory.address_space import explain_mapping_errors
from sparkext.memory.freed import release_memory
from sparkext.rows.morsels import MAX_MORSEL_BYTES
from sparkext.storage.paced_writes import PacedWriter

Place = tuple[int, int]
"""The position of a batch in the order of all batches."""

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

    def add(self, place: Place, batch: pa.RecordBatch) -> None:
        """Store one more batch."""
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

    def _may_read(self) -> bool:
        """One thread may always read. Until the first batch has been read, batches are assumed to have maximum size."""
        most = self._most() if self._readers else None
        largest = MAX_MORSEL_BYTES if self._largest is None else self._largest
        return most is None or (self._readers + 1) * largest * _READING <= most

    def table(self, schema: pa.Schema) -> pa.Table:
        """Return all rows in order; rows in files are memory-mapped."""
        found = list(self._kept)
        for file in self._files.values():
            found.extend(file.batches())
        found.sort(key=lambda placed: placed[0])
        return pa.Table.from_batches([batch for _, batch in found], schema)

    def _file(self, schema: pa.Schema) -> _RowFile:
        """Return the file of the current thread."""
        thread = threading.get_ident()
        if thread not in self._files:
            self._files[thread] = _RowFile(self._open.enter_context(open_unnamed_file(self._folder)), schema)
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
        with pa.ipc.open_stream(map_contents(self._stream)) as reader:
            yield from zip(self._places, reader, strict=True)


def open_unnamed_file(folder: Path | None) -> PacedWriter:
    """Open a new unnamed file on the disk of this folder; it is deleted when it is neither open nor mapped."""
    return PacedWriter(tempfile.TemporaryFile(dir=folder, buffering=0))


def map_contents(stream: PacedWriter) -> pa.Buffer:
    """Map the contents of a file, which may be closed afterwards."""
    stream.sync()
    with explain_mapping_errors("what was read of a build side"):
        return pa.py_buffer(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ))
