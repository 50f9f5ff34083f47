"""Buffers received blocks: in memory up to a limit, then in a file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from sparkext.rows.collected import map_contents, open_unnamed_file
from sparkext.shuffle.blocks import rows_of
from sparkext.storage.paced_writes import PacedWriter


class BlockBuffer:
    """A buffer of compressed blocks.

    `most()`: maximum bytes in memory, None without limit. The rest is spilled to disk, in `folder`. The spill file has
    no name, so it is removed however the process ends.
    """

    def __init__(self, most: Callable[[], int | None], folder: Path) -> None:
        """Begin without blocks."""
        self._most = most
        self._folder = folder
        self._kept: deque[pa.Buffer] = deque()
        self._bytes = 0
        self._file: PacedWriter | None = None
        self._written: list[int] = []

    def close(self) -> None:
        """Close the spill file, if there is one."""
        if self._file is not None:
            self._file.close()

    @property
    def spilled(self) -> bool:
        """Whether blocks were spilled to disk."""
        return self._file is not None

    def add(self, block: pa.Buffer) -> None:
        """Add a block."""
        if self._file is None:
            most = self._most()
            if most is None or self._bytes + block.size <= most:
                self._kept.append(block)
                self._bytes += block.size
                return
            self._file = open_unnamed_file(self._folder)
        self._file.write(block)
        self._written.append(block.size)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows; release blocks in memory one by one."""
        while self._kept:
            yield from rows_of(self._kept.popleft())
        if self._file is None:
            return
        content, at = map_contents(self._file), 0
        for size in self._written:
            yield from rows_of(content.slice(at, size))
            at += size
