"""Values kept in memory up to a limit; the rest is spilled to files.

The files have no names, so that none remains, however a process ends. They are memory-mapped, so that the system can
reclaim their pages.
"""

from __future__ import annotations

import mmap
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from sparkext.memory.address_space import explain_mapping_errors
from sparkext.storage.paced_writes import PacedWriter

Place = tuple[int, int]
"""The position of a value in the order of all values."""

Spilled = TypeVar("Spilled")


class SpillBuffer(Generic[Spilled]):
    """Values added by several threads, and read in the order of their positions.

    It has to be closed.

    Parameters
    ----------
    most
        Returns the maximum number of bytes in memory, None for no limit. Called for each value, until one is spilled.
    folder
        Values are spilled to the disk of this folder. Each thread writes its own file.
    write, read
        Write a value to a file, and return it from its bytes in the mapped file. By default, values are Arrow buffers.
    moves_all
        Whether values in memory are moved to a file as soon as the limit is exceeded.
    """

    def __init__(
        self,
        most: Callable[[], int | None],
        folder: Path | None,
        write: Callable[[PacedWriter, Any], object] = PacedWriter.write,
        read: Callable[[pa.Buffer], Any] = lambda content: content,
        moves_all: bool = False,
    ) -> None:
        """Begin without values."""
        self._most, self._folder, self._write, self._read, self._moves_all = most, folder, write, read, moves_all
        self._lock = threading.Lock()
        self._in_memory: deque[tuple[Place, Spilled]] = deque()
        self._bytes = 0
        self._files: dict[int, _SpillFile] = {}
        self.spilled = False

    def close(self) -> None:
        """Close the files. Values that have been read remain valid."""
        for file in self._files.values():
            file.stream.close()

    def add(self, position: Place, value: Spilled, size: int) -> None:
        """Add a value of `size` bytes in memory."""
        with self._lock:
            if not self.spilled:
                self._bytes += size
                most = self._most()
                self.spilled = most is not None and self._bytes > most
            if not self.spilled:
                self._in_memory.append((position, value))
                return
            pending: deque[tuple[Place, Spilled]] = deque()
            if self._moves_all:
                pending, self._in_memory = self._in_memory, pending
            pending.append((position, value))
            thread = threading.get_ident()
            if thread not in self._files:
                self._files[thread] = _SpillFile(open_unnamed_file(self._folder))
            file = self._files[thread]
        del value
        while pending:
            position, value = pending.popleft()
            self._write(file.stream, value)
            file.ends.append((position, file.stream.tell()))

    def items(self) -> Iterator[tuple[Place, Spilled]]:
        """Yield all values with their positions, in this order, and release them one by one. Call this once."""
        for file in self._files.values():
            self._in_memory.extend((position, self._read(content)) for position, content in file.contents())
        self._in_memory = deque(sorted(self._in_memory, key=itemgetter(0)))
        while self._in_memory:
            yield self._in_memory.popleft()

    def values(self) -> Iterator[Spilled]:
        """Yield the same values without their positions."""
        return (value for _, value in self.items())


class _SpillFile:
    """A file, and the position and end of each value in it."""

    def __init__(self, stream: PacedWriter) -> None:
        self.stream = stream
        self.ends: list[tuple[Place, int]] = []

    def contents(self) -> Iterator[tuple[Place, pa.Buffer]]:
        """Yield the position and the mapped bytes of each value."""
        content = map_contents(self.stream) if self.ends[-1][1] else pa.py_buffer(b"")  # empty files cannot be mapped
        start = 0
        for position, end in self.ends:
            yield position, content.slice(start, end - start)
            start = end


def open_unnamed_file(folder: Path | None) -> PacedWriter:
    """Open a new unnamed file on the disk of this folder; it is deleted when it is neither open nor mapped."""
    return PacedWriter(tempfile.TemporaryFile(dir=folder, buffering=0))


def map_contents(stream: PacedWriter) -> pa.Buffer:
    """Map the contents of a file, which may be closed afterwards."""
    stream.sync()
    with explain_mapping_errors("spilled data"):
        return pa.py_buffer(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ))
