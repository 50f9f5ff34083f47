"""Ranges of a remote file that are fetched together: adjacent ranges are merged into one request.

A store takes some 30 ms to respond, in which it could have sent a megabyte or more. Therefore small gaps between
columns are fetched, too, and all ranges are requested before any is read.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Range = tuple[int, int]
"""The first byte, and the byte after the last one."""

MOST_GAP_BYTES = 1 << 20
"""Maximum size of a gap between two ranges that is fetched with them."""

MOST_REQUESTED_BYTES = 16 << 20
"""Maximum size of a merged range, so that several responses can be received in parallel."""

_SMALL_FILE_BYTES = 1 << 20
"""Maximum size of a file that is fetched completely when it is opened."""

_FOOTER_BYTES = 256 << 10
"""Bytes at the end of a larger file to fetch first. Arrow would request 64 KB, and again if the footer is larger."""


def merge_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges to request, in order; each of the given ranges is within one of them."""
    requests: list[Range] = []
    for start, stop in sorted(ranges):
        if requests:
            first, last = requests[-1]
            if start < last or (start - last <= MOST_GAP_BYTES and stop - first <= MOST_REQUESTED_BYTES):
                requests[-1] = (first, max(last, stop))
                continue
        requests.append((start, stop))
    return requests


@dataclass(frozen=True)
class FetchedPart:
    """The bytes of a file from `start` to before `stop`, available when the request completes."""

    start: int
    stop: int
    bytes: Future[bytes]


class FetchedRanges:
    """A file some parts of which have been fetched, or requested."""

    def __init__(self, source: Any, parts: Sequence[FetchedPart]) -> None:
        """Bind it to the source, from which bytes outside of all parts are read."""
        self._source, self._parts = source, parts

    @classmethod
    def begun(cls, source: Any, ranges: Iterable[Range], pool: Executor, parts: Sequence[FetchedPart]) -> FetchedRanges:
        """Request the ranges that the parts do not contain; for each request a thread of `pool` waits."""
        missing = merge_ranges(range_ for range_ in ranges if not any(_contains_range(part, *range_) for part in parts))
        requests = [
            FetchedPart(start, stop, pool.submit(source.read_at, stop - start, start)) for start, stop in missing
        ]
        return cls(source, [*parts, *requests])

    def file(self) -> pa.PythonFile:
        """Open the file for Arrow. Bytes that were not fetched are read from the source."""
        return pa.PythonFile(_View(self, self._source.size()), mode="r")

    def read(self, start: int, size: int) -> bytes | memoryview:
        """Return `size` bytes from `start` on; the file must contain all of them."""
        for part in self._parts:
            if _contains_range(part, start, start + size):
                return memoryview(part.bytes.result())[start - part.start : start - part.start + size]
        return bytes(self._source.read_at(size, start))


def read_last_part(source: Any) -> FetchedPart:
    """Read the end of a file with its footer; a small file completely."""
    size = source.size()
    start = 0 if size <= _SMALL_FILE_BYTES else size - _FOOTER_BYTES
    read: Future[bytes] = Future()
    read.set_result(source.read_at(size - start, start))
    return FetchedPart(start, size, read)


def _contains_range(part: FetchedPart, start: int, stop: int) -> bool:
    return part.start <= start and stop <= part.stop


class _View(io.RawIOBase):
    """A file object as Arrow's `PythonFile` requires it."""

    def __init__(self, ranges: FetchedRanges, size: int) -> None:
        self._ranges, self._size, self._position = ranges, size, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int = -1) -> bytes | memoryview:
        """Return the next `size` bytes, or fewer at the end of the file."""
        remaining = max(0, self._size - self._position)
        data = self._ranges.read(self._position, remaining if size < 0 else min(size, remaining))
        self._position += len(data)
        return data
