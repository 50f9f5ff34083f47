"""Small files in which the kernel tells of memory, read again and again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

# Larger than any file read here (memory.stat and meminfo stay below 4 KiB): one read gets a file whole.
_READ_BYTES = 16_384


class KernelFile:
    """A small kernel file that is opened once and read again and again. A missing one reads as empty."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY)

    def read(self) -> bytes:
        """The whole content as of now."""
        if self._descriptor is None:
            return b""
        try:
            return os.pread(self._descriptor, _READ_BYTES, 0)
        except OSError:  # The control group was removed meanwhile.
            return b""

    def number(self) -> int | None:
        """The content as an integer; None for `max`, for garbage and for nothing."""
        return number(self.read())

    def close(self) -> None:
        """Release the descriptor. The file reads as empty from then on."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_once(path: Path) -> bytes:
    """The content of a file that is read once; empty if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def number(text: bytes) -> int | None:
    """The text as an integer; None if it is none."""
    try:
        return int(text)
    except ValueError:
        return None


def field(text: bytes, needle: bytes) -> int | None:
    """The integer after `needle`, found without splitting the file; None if it is not there."""
    start = text.find(needle)
    if start < 0:
        return None
    words = text[start + len(needle) : start + len(needle) + 48].split(None, 1)
    return number(words[0]) if words else None
