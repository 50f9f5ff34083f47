"""Where a worker finds a published build side. Written on the driver, pickled into the pipeline's function."""

from __future__ import annotations

import errno
import hashlib
import json
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from sparkext import __version__
from sparkext.build_sides.file import (
    WAYS_OUT,
    check_build_size,
    read_build_file,
    streamed_table,
    write_build_file,
)
from sparkext.build_sides.index_builder import BuiltIndex, IndexRecipe, index_columns
from sparkext.build_sides.index_cache import evict, touch
from sparkext.build_sides.index_store import (
    INDEX_SUFFIX,
    BuildSide,
    index_in_memory,
    open_build_side,
    open_kept_index,
)
from sparkext.errors import BuildFileError, BuildSideTooLargeError
from sparkext.memory.freed import headroom_for, release
from sparkext.memory.probes import process_probe
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.scan import Split
from sparkext.rows.collected import CollectedRows, mapped, unnamed_file
from sparkext.rows.contiguous import contiguous
from sparkext.storage.container import FORMAT_VERSION, atomic_file, checked, file_identity, map_checked, map_file
from sparkext.storage.last_used import LastUsed
from sparkext.storage.local_folder import local_folder
from sparkext.storage.publication import published

BUILD_SUFFIX = "build"
_MOST_OF_HEADROOM = 0.25
"""Of what memory there is, rows may take so much while they are indexed, and the index and a column as much again."""


class BuildSource(Protocol):
    """A published build file, as seen from a worker."""

    def open(self, recipe: IndexRecipe) -> BuildSide:
        """Return the build side with the index that `recipe` asks for."""
        ...

    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns, without an index."""
        ...


class _MappedFile:
    """What local files have in common, wherever Spark put them."""

    def path(self) -> Path:
        raise NotImplementedError

    def build_file(self) -> Path:
        """Return the build file, which is the file itself unless it first has to be made from it."""
        return self.path()

    def open(self, recipe: IndexRecipe) -> BuildSide:
        try:
            return open_build_side(self.build_file(), recipe)
        except OSError as error:
            path = self.path()
            if not path.exists():
                raise
            # A full or read-only disk costs memory here, not the query.
            warnings.warn(
                f"what lies beside {path} cannot be shared ({error}): this worker holds a copy of its own in memory",
                stacklevel=2,
            )
            return _private_build_side(f"{path} {file_identity(path)}", self.columns, recipe)

    def columns(self) -> tuple[int, list[pa.Array]]:
        path = self.path()
        return read_build_file(map_checked(path), str(path))


@dataclass(frozen=True)
class BroadcastFile(_MappedFile):
    """The local file of a Spark broadcast."""

    broadcast: Any

    def path(self) -> Path:
        """Return this node's copy."""
        return Path(self.broadcast._path)


@dataclass(frozen=True)
class StreamedBroadcast(_MappedFile):
    """The local file of a broadcast that holds Arrow streams one after the other, as the JVM wrote them.

    The first worker of a node makes a build file of it, whose columns are contiguous. `schema` has Spark's Arrow types,
    `crc` is the CRC-32 of the file.
    """

    broadcast_id: int
    schema: pa.Schema
    crc: int

    def path(self) -> Path:
        """Return this node's copy."""
        from pyspark.core.broadcast import _broadcastRegistry

        return Path(_broadcastRegistry[self.broadcast_id]._path)

    def build_file(self) -> Path:
        """Make the build file if no worker of this node has, or if it is damaged."""
        streams = self.path()
        made = streams.with_name(f"{streams.name}.{BUILD_SUFFIX}")

        def write() -> None:
            with atomic_file(made) as stream:
                write_build_file(self._table(), stream)

        published(made, write, map_checked)
        return made

    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns, made contiguous in this process's memory."""
        table = self._table()
        _check_memory(table.num_rows, table.nbytes)
        sink = pa.BufferOutputStream()
        write_build_file(table, sink)
        return read_build_file(sink.getvalue(), str(self.path()))

    def _table(self) -> pa.Table:
        path = self.path()
        content = map_file(path)
        if zlib.crc32(content) != self.crc:
            raise BuildFileError(f"{path}: the checksum of the build side's rows is wrong: the file is damaged")
        return streamed_table(content, self.schema)


@dataclass(frozen=True)
class ArtifactFile(_MappedFile):
    """A file added to a Spark Connect session."""

    name: str

    def path(self) -> Path:
        """Return this node's copy."""
        from pyspark import SparkFiles

        return Path(SparkFiles.get(self.name))


@dataclass(frozen=True)
class BroadcastBytes:
    """The bytes of a build file in an encrypted broadcast: every worker has its own copy.

    `name` tells it from all others: workers drop and load broadcasts as tasks come and go.
    """

    name: str
    broadcast: Any

    def open(self, recipe: IndexRecipe) -> BuildSide:
        """Return the build side, indexed in this process."""
        return _private_build_side(self.name, self.columns, recipe)

    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns."""
        origin = "encrypted broadcast"
        return read_build_file(checked(pa.py_buffer(self.broadcast.value), origin), origin)


@dataclass(frozen=True)
class ScannedFiles:
    """Parquet files that the workers of each node read themselves, once: the first one builds, with all of their cores.

    `max_bytes` limits the build side, `cache_bytes` what its node keeps of this and earlier ones (see `index_cache`).
    `threads`: the cores that this process and those waiting for it have together.
    """

    scan: ParquetScan
    splits: tuple[Split, ...]
    max_bytes: int
    cache_bytes: int
    threads: int

    def open(self, recipe: IndexRecipe) -> BuildSide:
        """Return the build side from the cache, reading and indexing it first if it is not there."""
        try:
            return self._cached(recipe)
        except OSError as error:
            if error.errno not in _DISK_PROBLEMS:
                raise
            warnings.warn(
                f"a build side cannot be kept on disk ({error}): this worker holds a copy of its own in memory",
                stacklevel=2,
            )
            return _private_build_side(self._digest(), self.columns, recipe)

    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns, read into this process's memory."""
        table = self._scan().table(self.splits, self.threads, self._check_in_memory)
        return table.num_rows, [contiguous(column) for column in table.columns]

    def entry(self, recipe: IndexRecipe) -> Path:
        """Return where the cache keeps this index of the files, as these are now."""
        return local_folder() / f"{self._digest()}.{recipe.digest}{INDEX_SUFFIX}"

    def _cached(self, recipe: IndexRecipe) -> BuildSide:
        entry = self.entry(recipe)
        for last_attempt in (False, False, True):
            try:
                reused = entry.exists()
                side = open_kept_index(entry, lambda: self._built(recipe, entry.parent))
                touch(entry)
                return replace(side, reused=reused)
            except FileNotFoundError:
                if last_attempt:
                    raise
                # Another query has made room for its own: this one needs the entry all the same.
        raise AssertionError("the last attempt returns or raises")

    def _built(self, recipe: IndexRecipe, folder: Path) -> BuiltIndex:
        with CollectedRows(self._check, _share_of_headroom, folder) as collected:
            table = self._scan().collect(self.splits, self.threads, collected)
        rows, columns = table.num_rows, table.columns
        if collected.spilled:
            release()
            for number, column in zip(recipe.indexed, _on_disk(table.select(recipe.indexed), folder), strict=True):
                columns[number] = column
        del table  # its columns are let go one by one
        return index_columns(rows, columns, recipe, self.threads, keep=True)

    def _scan(self) -> ParquetScan:
        return replace(self.scan, opened={}, unchecked=set())

    def _check(self, rows: int, size: int) -> None:
        check_build_size(rows, size, self.max_bytes)

    def _check_in_memory(self, rows: int, size: int) -> None:
        self._check(rows, size)
        _check_memory(rows, size)

    def _digest(self) -> str:
        """Name the rows: what is read of which files, as they are now."""
        files = [(*vars(split).values(), self.scan.identity(split.path)) for split in self.splits]
        spec = self.scan.spec
        parts = [__version__, FORMAT_VERSION, repr(spec), repr(self.scan.calendars), str(self.scan.schema), files]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _check_memory(rows: int, size: int) -> None:
    """Hold rows that cannot be kept on disk against the memory that making them contiguous takes.

    Raises:
        BuildSideTooLargeError: there is less.
    """
    free = headroom_for(size)
    if free is not None and size > free:
        raise BuildSideTooLargeError(
            f"the build side does not fit the memory: its first {rows:,} rows take {size:,} bytes,"
            f" {free:,} are free to make them contiguous, and they cannot be kept on disk. {WAYS_OUT}"
        )


def _share_of_headroom() -> int | None:
    headroom = process_probe().headroom()
    return None if headroom is None else int(headroom.bytes * _MOST_OF_HEADROOM)


def _on_disk(table: pa.Table, folder: Path) -> list[pa.Array]:
    """Return the columns, contiguous, in pages of a file without a name, which the system may reclaim."""
    with unnamed_file(folder) as stream:
        write_build_file(table, stream)
        _, columns = read_build_file(mapped(stream), "a temporary file")
        return columns


def make_room(sources: Sequence[BuildSource], recipes: Sequence[IndexRecipe]) -> None:
    """Keep the cache of this node within its limit, but keep these indexes of these sources."""
    read = [
        (source, recipe) for source, recipe in zip(sources, recipes, strict=True) if isinstance(source, ScannedFiles)
    ]
    if read:
        try:
            evict({source.entry(recipe) for source, recipe in read}, read[0][0].cache_bytes)
        except OSError as error:
            if error.errno not in _DISK_PROBLEMS:
                raise  # else there is no cache here, of which `ScannedFiles.open` has warned


# Of the files that are read, errors are `FileReadError`s. An entry that is gone again and again has no room.
_DISK_PROBLEMS = (
    *(errno.ENOENT, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP),  # a shared file system without locks
)

_PRIVATE_BUILD_SIDES = 8
_private: LastUsed[tuple[str, str], BuildSide] = LastUsed(_PRIVATE_BUILD_SIDES)


def _private_build_side(name: str, load: Callable[[], tuple[int, list[pa.Array]]], recipe: IndexRecipe) -> BuildSide:
    """Load and index a build side for this process alone, once for all of its tasks."""
    key = (name, recipe.digest)
    if key not in _private:
        _private[key] = index_in_memory(*load(), recipe)
    return _private[key]
