"""Rows that several threads read: kept in memory while they are little beside what is free, else in files.

The files have no names, so that none is left however a process ends, and lie mapped: their pages are the system's to
take back. Each thread writes one of its own, and they are put in order when all have come.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO

import pyarrow as pa

Place = tuple[int, int]
"""Where a batch belongs among all of them."""

_BYTES_BETWEEN_SYNCS = 32 << 20


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
        self._lock = threading.Lock()
        self._kept: deque[tuple[Place, pa.RecordBatch]] = deque()
        self._rows = self._bytes = 0
        self._files: dict[int, _RowFile] = {}
        self._open = ExitStack()
        self.spilled = False

    def __enter__(self) -> CollectedRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._open.close()

    def add(self, place: Place, batch: pa.RecordBatch) -> None:
        """Keep one more batch."""
        with self._lock:
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
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
        few = len(moved) == 1
        while moved:
            file.write(*moved.popleft())
        if not few:
            pa.default_memory_pool().release_unused()

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
            stream = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  closed with all others
            self._files[thread] = _RowFile(self._open.enter_context(stream), schema)
        return self._files[thread]


class _RowFile:
    """An Arrow stream in a file without a name."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema) -> None:
        self._stream = stream
        self._writer = pa.ipc.new_stream(stream, schema)
        self._places: list[Place] = []
        self._unsynced = 0

    def write(self, place: Place, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self._places.append(place)
        self._unsynced += batch.nbytes
        if self._unsynced > _BYTES_BETWEEN_SYNCS:
            # Pages that are not on the disk yet are no more free than any other memory.
            sync(self._stream)
            self._unsynced = 0

    def batches(self) -> Iterator[tuple[Place, pa.RecordBatch]]:
        self._writer.close()
        sync(self._stream)
        with pa.ipc.open_stream(mapped(self._stream)) as reader:
            yield from zip(self._places, reader, strict=True)


def sync(stream: IO[bytes]) -> None:
    """Have all that was written on the disk, from where its pages can be taken back at once."""
    stream.flush()
    os.fdatasync(stream.fileno())


def mapped(stream: IO[bytes]) -> pa.Buffer:
    """Map all that was written to a file, which may be closed then."""
    stream.flush()
    return pa.py_buffer(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ))
