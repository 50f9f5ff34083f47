"""Ranges of a remote file that are fetched together: what lies side by side comes with one answer.

A store takes some 30 ms to answer, in which a megabyte or more could have come. So the gaps between columns are
fetched along where they are small, and everything is asked for before it is read.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Range = tuple[int, int]
"""First byte, and the one after the last."""

MOST_GAP_BYTES = 1 << 20
"""What lies between two ranges is fetched along if it is no more."""

MOST_REQUESTED_BYTES = 16 << 20
"""Ranges are not put together to more, so that several answers come side by side."""

_SMALL_FILE_BYTES = 1 << 20
"""A file of no more is fetched whole as it is opened."""

_FOOTER_BYTES = 256 << 10
"""What is fetched of the end of another. Arrow would ask for 64 KB, and again where the footer is larger."""


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return what to ask for to have these ranges, in order: each lies in one of them."""
    wanted: list[Range] = []
    for start, stop in sorted(ranges):
        if wanted:
            first, last = wanted[-1]
            if start < last or (start - last <= MOST_GAP_BYTES and stop - first <= MOST_REQUESTED_BYTES):
                wanted[-1] = (first, max(last, stop))
                continue
        wanted.append((start, stop))
    return wanted


@dataclass(frozen=True)
class Part:
    """Bytes of a file from `start` on, up to `stop`, once they have come."""

    start: int
    stop: int
    bytes: Future[bytes]


class FetchedRanges:
    """A file of which these parts have come, or are on their way."""

    def __init__(self, source: Any, parts: Sequence[Part]) -> None:
        """Take what is not in any part from the source."""
        self._source, self._parts = source, parts

    @classmethod
    def begun(cls, source: Any, ranges: Iterable[Range], pool: Executor, parts: Sequence[Part]) -> FetchedRanges:
        """Ask for what the parts do not have of these ranges: a thread of `pool` waits for each answer."""
        missing = merged(range_ for range_ in ranges if not any(_has(part, *range_) for part in parts))
        asked = [Part(start, stop, pool.submit(source.read_at, stop - start, start)) for start, stop in missing]
        return cls(source, [*parts, *asked])

    def file(self) -> pa.PythonFile:
        """Open the file for Arrow. What was not fetched is read from the source."""
        return pa.PythonFile(_View(self, self._source.size()), mode="r")

    def read(self, start: int, size: int) -> bytes | memoryview:
        """Return so many bytes from there on, all of which the file has."""
        for part in self._parts:
            if _has(part, start, start + size):
                return memoryview(part.bytes.result())[start - part.start : start - part.start + size]
        return bytes(self._source.read_at(size, start))


def last_part(source: Any) -> Part:
    """Read what a file ends with, the footer; a small one whole."""
    size = source.size()
    start = 0 if size <= _SMALL_FILE_BYTES else size - _FOOTER_BYTES
    read: Future[bytes] = Future()
    read.set_result(source.read_at(size - start, start))
    return Part(start, size, read)


def _has(part: Part, start: int, stop: int) -> bool:
    return part.start <= start and stop <= part.stop


class _View(io.RawIOBase):
    """What Arrow takes for a file of Python's."""

    def __init__(self, ranges: FetchedRanges, size: int) -> None:
        self._ranges, self._size, self._at = ranges, size, 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read anywhere."""
        return True

    def tell(self) -> int:
        """Return where it is read next."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set where it is read next."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes | memoryview:
        """Return so many of the next bytes, or as many as there are."""
        left = max(0, self._size - self._at)
        found = self._ranges.read(self._at, left if size < 0 else min(size, left))
        self._at += len(found)
        return found
