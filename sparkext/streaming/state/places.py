"""Locations in a checkpoint: in a folder that all nodes share, or in a bucket that workers can access.

A location (`Location`) is built from parts, `location / "sparkext" / "hits"`. Writes are atomic, and reads are checked.
A file in a bucket is first copied to a local file, which is mapped: only the used part needs memory.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol

import pyarrow as pa

from sparkext.errors import StateError
from sparkext.parquet.file_stores import Bucket, open_file_system
from sparkext.parquet.s3_settings import derive_bucket
from sparkext.storage.container import atomic_file, check_container, map_checked, map_file, read_footer, read_trailer
from sparkext.storage.local_folder import local_folder

_TAIL = 1 << 16
"""Number of bytes at the end of a file that are read first: most footers are shorter."""

_PIECE = 8 << 20

_LOCATION = re.compile(r"(?:([^:/]*):)?(?://(?=.)([^/]*))?(.*)", re.DOTALL)


class Location(Protocol):
    """The location of a file or a folder, which need not exist. Reading raises FileNotFoundError if it does not."""

    def __hash__(self) -> int: ...

    def __truediv__(self, name: str) -> Location: ...

    def exists(self) -> bool:
        """Return whether a file exists here."""
        ...

    def text(self) -> str:
        """Return the content of a text file."""
        ...

    def claim(self, text: str) -> str:
        """Write a text file if none exists; return the content of the existing or new file."""
        ...

    def clear(self, but: str = "") -> None:
        """Remove the content of this folder except the file `but`; without `but`, also remove the folder."""
        ...

    def footer(self) -> dict[str, Any]:
        """Return the footer of a container."""
        ...

    def content(self) -> pa.Buffer:
        """Return the complete content of a container."""
        ...

    def open_writer(self) -> Any:
        """Return a context that yields a binary stream, to write a container. It replaces an existing file."""
        ...


@dataclass(frozen=True)
class LocalLocation:
    """A path that all nodes share."""

    path: Path

    def __truediv__(self, name: str) -> LocalLocation:
        return LocalLocation(self.path / name)

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """As in `Location`."""
        return self.path.exists()

    def text(self) -> str:
        """As in `Location`."""
        return self.path.read_text(encoding="utf-8")

    def claim(self, text: str) -> str:
        """As in `Location`. The file is created before it is written: if it is still empty, return `text`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), open(self.path, "x", encoding="utf-8", opener=_open_for_user) as stream:
            stream.write(text)
            return text
        return self.text() or text

    def clear(self, but: str = "") -> None:
        """As in `Location`."""
        if not but:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        for file in self.path.iterdir():
            if file.name != but:
                file.unlink(missing_ok=True)

    def footer(self) -> dict[str, Any]:
        """As in `Location`."""
        return read_footer(map_file(self.path), str(self))

    def content(self) -> pa.Buffer:
        """As in `Location`."""
        return map_checked(self.path)

    @contextmanager
    def open_writer(self) -> Iterator[IO[bytes]]:
        """As in `Location`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(self.path) as stream:
            yield stream


def _open_for_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@dataclass(frozen=True)
class BucketLocation:
    """A key in a bucket of an S3-compatible store; `key` has no leading or trailing slash."""

    bucket: Bucket
    key: str

    def __truediv__(self, name: str) -> BucketLocation:
        return BucketLocation(self.bucket, f"{self.key}/{name}" if self.key else name)

    def __str__(self) -> str:
        return f"s3a://{self._path}"

    @property
    def _path(self) -> str:
        return f"{self.bucket.name}/{self.key}"

    @property
    def _store(self) -> Any:
        return open_file_system(self.bucket)

    def exists(self) -> bool:
        """As in `Location`."""
        from pyarrow import fs

        return bool(self._store.get_file_info(self._path).type == fs.FileType.File)

    def text(self) -> str:
        """As in `Location`."""
        with self._store.open_input_file(self._path) as stream:
            return str(stream.read().decode())

    def claim(self, text: str) -> str:
        """As in `Location`, but not atomic: if two tasks claim it at the same time, both may succeed."""
        with suppress(FileNotFoundError):
            return self.text()
        self._put(pa.py_buffer(text.encode()))
        return self.text()

    def clear(self, but: str = "") -> None:
        """As in `Location`."""
        from pyarrow import fs

        infos = self._store.get_file_info(fs.FileSelector(self._path, recursive=True, allow_not_found=True))
        for info in infos:
            if info.type == fs.FileType.File and info.base_name != but:
                with suppress(FileNotFoundError):  # another task clears it, too
                    self._store.delete_file(info.path)

    def footer(self) -> dict[str, Any]:
        """As in `Location`."""
        with self._store.open_input_file(self._path) as stream:
            size = stream.size()
            tail_bytes = _TAIL
            while True:
                tail = stream.read_at(min(size, tail_bytes), max(0, size - tail_bytes))
                footer, tail_bytes = read_trailer(pa.py_buffer(tail), size, str(self))
                if footer is not None:
                    return footer

    def content(self) -> pa.Buffer:
        """As in `Location`."""
        with self._store.open_input_stream(self._path) as stream, TemporaryFile(dir=local_folder()) as local:
            while piece := stream.read(_PIECE):
                local.write(piece)
            local.flush()
            if not local.tell():
                return check_container(pa.py_buffer(b""), str(self))
            return check_container(map_file(Path(f"/proc/self/fd/{local.fileno()}")), str(self))

    @contextmanager
    def open_writer(self) -> Iterator[IO[bytes]]:
        """As in `Location`."""
        with TemporaryFile(dir=local_folder()) as local:
            yield local
            local.flush()
            self._put(map_file(Path(f"/proc/self/fd/{local.fileno()}")))

    def _put(self, content: pa.Buffer) -> None:
        """Store an object in one call: closing a stream early would leave a partial object."""
        stream = self._store.open_output_stream(self._path)
        stream.write(content)
        stream.close()


def resolve_location(location: str, s3a: Mapping[str, str]) -> Location:
    """Return the location of a checkpoint; `s3a` are the settings of Spark's connector.

    Raises
    ------
    StateError
        The location is in a store that workers cannot access.
    """
    scheme, authority, path = split_location(location)
    if scheme in ("", "file"):
        return LocalLocation(Path(path))
    if scheme == "s3a":
        bucket = derive_bucket(authority, s3a.get)
        if isinstance(bucket, Bucket):
            return BucketLocation(bucket, path.strip("/"))
        reason = bucket
    else:
        reason = f"workers cannot access {scheme}://"
    raise StateError(
        f"workers cannot store the state of a stream in the checkpoint {location}: {reason}. Use a folder that every"
        " node can access as a local folder (file:/…), or a bucket that Spark accesses with its S3A connector (s3a://…)"
    )


def split_location(location: str) -> tuple[str, str, str]:
    """Return scheme, authority and path of a location in the syntax of Hadoop's `Path`; "" for a missing part.

    A location is not a URL: it has no query, no fragment and no percent-encoding.
    """
    match = _LOCATION.fullmatch(location)
    assert match is not None, "every text matches"
    scheme, authority, path = (part or "" for part in match.groups())
    return scheme, authority, posixpath.normpath(re.sub("/+", "/", path)) if path else ""
