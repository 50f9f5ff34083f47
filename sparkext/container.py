"""The file container that build sides and indexes share: named blocks that can be mapped, and a footer that is checked.

    magic (8) │ block │ block │ … │ footer (JSON) │ footer length (8) │ CRC-32 of the footer (4) │ magic (8)

Blocks start at multiples of 64 bytes. A file is written under a temporary name and renamed when it is whole, so that a
reader sees all of it or none; the trailer tells a truncated or foreign file apart all the same.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from sparkext.errors import BuildFileError

FORMAT_VERSION = 3
TEMPORARY_SUFFIX = ".part"
_MAGIC = b"SPARKEX\x01"
_ALIGNMENT = 64
_TRAILER = struct.Struct("<QI8s")


FileIdentity = tuple[int, int, int]
"""What changes when a file is replaced: inode, size in bytes, modification time in nanoseconds."""


def file_identity(path: Path) -> FileIdentity:
    """Return the identity of the file that lies there now."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


class ContainerWriter:
    """Writes blocks one after the other to a binary stream, then the footer."""

    def __init__(self, stream: IO[bytes]) -> None:
        """Begin the file. The stream need not be seekable."""
        self._stream = stream
        self._position = 0
        self._put(_MAGIC)

    def block(self, write: Callable[[IO[bytes]], object]) -> tuple[int, int]:
        """Let `write` write one block; return its (offset, length) in bytes, for the footer."""
        self._put(b"\0" * (-self._position % _ALIGNMENT))
        start = self._position
        write(_Counting(self._stream, self._advance))  # type: ignore[arg-type]
        return start, self._position - start

    def finish(self, footer: dict[str, Any]) -> int:
        """Write footer and trailer; return the size of the file in bytes."""
        encoded = json.dumps({"version": FORMAT_VERSION, **footer}).encode()
        self._put(encoded)
        self._put(_TRAILER.pack(len(encoded), zlib.crc32(encoded), _MAGIC))
        return self._position

    def _put(self, data: bytes) -> None:
        self._stream.write(data)
        self._position += len(data)

    def _advance(self, count: int) -> None:
        self._position += count


class _Counting:
    """A stream that reports how much was written through it; Arrow's writers accept it as a file."""

    closed = False

    def __init__(self, stream: IO[bytes], advance: Callable[[int], None]) -> None:
        self._stream = stream
        self._advance = advance

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._stream.write(data)
        self._advance(size)
        return size

    def flush(self) -> None:
        """Leave flushing to the owner of the stream."""

    def close(self) -> None:
        """Leave the stream open: another block follows."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def read_footer(buffer: pa.Buffer, origin: str) -> dict[str, Any]:
    """Check the trailer of a whole container and return its footer. `origin` names the file in errors.

    Raises:
        BuildFileError: the file is truncated, damaged, of another version, or no container at all.
    """
    if buffer.size < len(_MAGIC) + _TRAILER.size:
        raise BuildFileError(f"{origin}: {buffer.size} bytes are too few for a sparkext file: it is truncated")
    length, checksum, magic = _TRAILER.unpack(buffer[buffer.size - _TRAILER.size :].to_pybytes())
    if magic != _MAGIC or buffer[: len(_MAGIC)].to_pybytes() != _MAGIC:
        raise BuildFileError(f"{origin}: not a sparkext file, or one that was cut off while it was written")
    if length > buffer.size - _TRAILER.size - len(_MAGIC):
        raise BuildFileError(f"{origin}: the footer claims {length} bytes, more than the file holds: it is damaged")
    encoded = buffer[buffer.size - _TRAILER.size - length : buffer.size - _TRAILER.size].to_pybytes()
    if zlib.crc32(encoded) != checksum:
        raise BuildFileError(f"{origin}: the checksum of the footer is wrong: the file is damaged")
    footer: dict[str, Any] = json.loads(encoded)
    if footer["version"] != FORMAT_VERSION:
        raise BuildFileError(f"{origin}: format version {footer['version']}, this package reads {FORMAT_VERSION}")
    return footer


def map_file(path: Path) -> pa.Buffer:
    """Map a file read-only and return all of it. The mapping outlives the file: it ends with the buffer."""
    with pa.memory_map(str(path), "r") as mapped:
        return mapped.read_buffer()


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a private temporary file beside `path`; rename it to `path` on success, remove it on failure."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
