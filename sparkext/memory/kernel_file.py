"""Small files with the kernel's memory statistics, which are read repeatedly."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

# Larger than any file read here (memory.stat and meminfo are below 4 KiB): one call reads a whole file.
_READ_BYTES = 16_384


class KernelFile:
    """A small kernel file that is opened once and read repeatedly. A missing file is read as empty."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY)

    def read(self) -> bytes:
        """Return the current content."""
        if self._descriptor is None:
            return b""
        try:
            return os.pread(self._descriptor, _READ_BYTES, 0)
        except OSError:  # The control group has been removed.
            return b""

    def number(self) -> int | None:
        """Return the content as an integer; None for `max`, for invalid content and for an empty file."""
        return parse_number(self.read())

    def close(self) -> None:
        """Close the descriptor. From then on, the file is read as empty."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_once(path: Path) -> bytes:
    """Return the content of a file that is read only once; empty if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def parse_number(text: bytes) -> int | None:
    """Return the text as an integer; None if it is not one."""
    try:
        return int(text)
    except ValueError:
        return None


def parse_field(text: bytes, needle: bytes) -> int | None:
    """Return the integer after `needle`, without splitting the text; None if `needle` or an integer is missing."""
    start = text.find(needle)
    if start < 0:
        return None
    words = text[start + len(needle) : start + len(needle) + 48].split(None, 1)
    return parse_number(words[0]) if words else None
