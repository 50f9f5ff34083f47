"""Cells that a slot keeps until their turn: in memory while they are little beside what is free, else in a file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from sparkext.exchange.cells import rows_of
from sparkext.rows.collected import mapped, unnamed_file
from sparkext.storage.paced_writes import PacedWriter


class HeldCells:
    """Keeps cells compressed. `most()`: bytes to keep in memory at most, None without limit; else on disk in `folder`.

    The file has no name, so that none is left however the process ends.
    """

    def __init__(self, most: Callable[[], int | None], folder: Path) -> None:
        """Begin without cells."""
        self._most = most
        self._folder = folder
        self._kept: deque[pa.Buffer] = deque()
        self._bytes = 0
        self._file: PacedWriter | None = None
        self._written: list[int] = []

    def close(self) -> None:
        """Let the file go, if there is one."""
        if self._file is not None:
            self._file.close()

    @property
    def spilled(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    def add(self, cell: pa.Buffer) -> None:
        """Keep one more cell."""
        if self._file is None:
            most = self._most()
            if most is None or self._bytes + cell.size <= most:
                self._kept.append(cell)
                self._bytes += cell.size
                return
            self._file = unnamed_file(self._folder)
        self._file.write(cell)
        self._written.append(cell.size)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows; cells are let go one by one."""
        while self._kept:
            yield from rows_of(self._kept.popleft())
        if self._file is None:
            return
        content, at = mapped(self._file), 0
        for size in self._written:
            yield from rows_of(content.slice(at, size))
            at += size
