"""The file container of build sides and indexes: blocks that can be mapped, and a footer with their checksums.

    magic (8) │ block │ block │ … │ footer (JSON) │ footer length (8) │ CRC-32 of the footer (4) │ magic (8)

Blocks start at multiples of 64 bytes. A file is written under a temporary name and renamed when it is complete, so that
readers see all of it or nothing. In addition, the trailer reveals truncated and foreign files, and the checksums reveal
changed bytes. A file contains no code and creates no Python objects: only numbers, names and Arrow buffers.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from sparkext.errors import BuildFileError
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.checksum import Checksum, checksum
from sparkext.memory.address_space import explain_mapping_errors
from sparkext.storage.last_used import LruCache
from sparkext.storage.paced_writes import PacedWriter

FORMAT_VERSION = 5
TEMPORARY_SUFFIX = ".part"
_MAGIC = b"SPARKEX\x01"
_ALIGNMENT = 64
_TRAILER = struct.Struct("<QI8s")


FileIdentity = tuple[int, int, int, int]
"""Values that change when a file is replaced: inode, size in bytes, modification and change time in nanoseconds.

A copy may preserve all of these except the change time, which the system sets. Linking, renaming and changing
permissions also change it: the file then counts as replaced, and is read again. On a file system without a change time,
a replaced file with the same other values is not detected.
"""


def identify_file(file: Path | int) -> FileIdentity:
    """Return the identity of the file at a path, or of an open file by its descriptor."""
    status = os.stat(file)  # noqa: PTH116 (descriptors, too)
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class ContainerWriter:
    """Writes blocks one after the other to a binary stream, then the footer."""

    def __init__(self, stream: IO[bytes]) -> None:
        """Begin the file. The stream need not be seekable."""
        self._stream = stream
        self._position = 0
        self._blocks: list[tuple[int, int, int]] = []
        self._put(_MAGIC)

    def block(self, write: Callable[[IO[bytes]], object]) -> tuple[int, int]:
        """Call `write` to write one block; return its (offset, length) in bytes, for the footer."""
        self._put(b"\0" * (-self._position % _ALIGNMENT))
        start = self._position
        summed = _ChecksumStream(self._stream)
        write(summed)  # type: ignore[arg-type]
        self._position += summed.length
        self._blocks.append((start, summed.length, summed.checksum.digest()))
        return start, summed.length

    def finish(self, footer: dict[str, Any]) -> int:
        """Write footer and trailer; return the size of the file in bytes."""
        encoded = json.dumps({"version": FORMAT_VERSION, "blocks": self._blocks, **footer}).encode()
        self._put(encoded)
        self._put(_TRAILER.pack(len(encoded), zlib.crc32(encoded), _MAGIC))
        return self._position

    def _put(self, data: bytes) -> None:
        self._stream.write(data)
        self._position += len(data)


class _ChecksumStream:
    """A stream that computes the checksum of the bytes written; Arrow's writers accept it as a file."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.length = 0
        self.checksum = Checksum()

    def write(self, data: Any) -> int:
        piece = np.frombuffer(data, dtype=np.uint8) if memoryview(data).nbytes else np.empty(0, dtype=np.uint8)
        self._stream.write(data)
        self.checksum.update(freeze(piece))
        self.length += piece.size
        return piece.size

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

    Raises
    ------
    BuildFileError
        The file is truncated, damaged, of another version, or no container at all.
    """
    footer, _ = read_trailer(buffer, buffer.size, origin)
    assert footer is not None, "the buffer is the whole file"
    if buffer[: len(_MAGIC)].to_pybytes() != _MAGIC:
        raise BuildFileError(f"{origin}: not a sparkext file, or not written completely")
    return footer


def read_trailer(tail: pa.Buffer, size: int, origin: str) -> tuple[dict[str, Any] | None, int]:
    """Return the footer of a container of `size` bytes, and the size of footer and trailer in bytes.

    The footer is None if `tail`, the last bytes of the container, does not contain the whole footer.

    Raises
    ------
    BuildFileError
        As in `read_footer`, except that the beginning of the file is not checked.
    """
    if size < len(_MAGIC) + _TRAILER.size:
        raise BuildFileError(f"{origin}: {size} bytes are too few for a sparkext file: the file is truncated")
    length, checksum, magic = _TRAILER.unpack(tail[tail.size - _TRAILER.size :].to_pybytes())
    if magic != _MAGIC:
        raise BuildFileError(f"{origin}: not a sparkext file, or not written completely")
    if length > size - _TRAILER.size - len(_MAGIC):
        raise BuildFileError(f"{origin}: the footer should have {length} bytes, but the file is shorter: it is damaged")
    tail_size = length + _TRAILER.size
    if tail_size > tail.size:
        return None, tail_size
    encoded = tail[tail.size - tail_size : tail.size - _TRAILER.size].to_pybytes()
    if zlib.crc32(encoded) != checksum:
        raise BuildFileError(f"{origin}: the checksum of the footer is wrong: the file is damaged")
    footer: dict[str, Any] = json.loads(encoded)
    if footer["version"] != FORMAT_VERSION:
        raise BuildFileError(f"{origin}: format version {footer['version']}, this package reads {FORMAT_VERSION}")
    return footer, tail_size


def check_container(buffer: pa.Buffer, origin: str) -> pa.Buffer:
    """Return a container after checking the checksums of all blocks. `origin` names the file in errors.

    Raises
    ------
    BuildFileError
        The file is truncated, damaged, of another version, or no container at all.
    """
    for offset, length, expected in read_footer(buffer, origin)["blocks"]:
        if checksum(freeze(np.frombuffer(buffer, np.uint8, length, offset))) != expected:
            raise BuildFileError(
                f"{origin}: the checksum of the {length:,} bytes at {offset:,} is wrong: the file is damaged"
            )
    return buffer


_REMEMBERED_FILES = 256
_checked_files: LruCache[tuple[str, FileIdentity], None] = LruCache(_REMEMBERED_FILES)
"""The files that this process has written or checked, and need not check again.

A process that maps a file of another process for the first time checks it. Measured on one core, 500 MB in the page
cache: 0.04 to 0.1 s, most of it for mapping pages, which joins that access them later need not map again. If the file
is not in the page cache, checking takes as long as reading it from disk. One check per node would be cheaper, but not
enough: an index is cached for hours, and may be read from disk again with changed bytes.
"""


def map_checked(path: Path) -> pa.Buffer:
    """Map a container, and check all of it unless this process has written or checked it before.

    Raises
    ------
    BuildFileError
        The file is truncated, damaged, of another version, or no container at all.
    """
    identity = identify_file(path)
    buffer = map_file(path)
    # A file that was just replaced is checked without being recorded.
    is_unchanged = identify_file(path) == identity
    if not is_unchanged or (str(path), identity) not in _checked_files:
        check_container(buffer, str(path))
        if is_unchanged:
            _checked_files[str(path), identity] = None
    return buffer


def map_file(path: Path) -> pa.Buffer:
    """Map a file read-only and return all of it. The mapping outlives the file, until the buffer is freed."""
    with explain_mapping_errors(str(path)), pa.memory_map(str(path), "r") as mapped:
        return mapped.read_buffer()


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a container as a `private_file`, and record it as checked."""
    with ExitStack() as stack:
        with private_file(path) as stream:
            yield stream
            descriptor = os.dup(stream.fileno())
            stack.callback(os.close, descriptor)
        # The identity after renaming, by descriptor: another file may have replaced it at `path` already.
        _checked_files[str(path), identify_file(descriptor)] = None


@contextmanager
def private_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file next to `path` for this user only; rename it to `path` on success, remove it on failure."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with PacedWriter(FileIO(descriptor, "wb")) as stream:
            yield stream
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
