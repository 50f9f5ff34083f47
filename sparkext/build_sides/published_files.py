"""Build sides that the driver has published, as workers open them. Transforms pickle these objects into their tasks."""

from __future__ import annotations

import warnings
import zlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from sparkext.build_sides.file import check_memory, read_build_file, read_streamed_table, write_build_file
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide, open_build_side
from sparkext.build_sides.sources import BuildSource, open_private_build_side
from sparkext.errors import BuildFileError
from sparkext.storage.container import atomic_file, check_container, identify_file, map_checked, map_file
from sparkext.storage.fingerprint import fingerprint_of
from sparkext.storage.publication import read_published

BUILD_SUFFIX = "build"


class MappedFile(BuildSource):
    """Base class of dataclasses for local files, wherever Spark stores them."""

    @abstractmethod
    def path(self) -> Path:
        """Return the path on this node."""

    def build_file(self) -> Path:
        """Return the build file: the file itself, unless a build file has to be derived from it."""
        return self.path()

    def digest(self) -> str:
        """Return a fingerprint of this file, as it is now, and of the columns read from it."""
        path = self.path()
        return fingerprint_of(self, path, identify_file(path))

    def open(self, recipe: IndexRecipe) -> BuildSide:
        """Return the build side, with an index shared by the node's workers, or a private one if the disk fails."""
        try:
            return open_build_side(self.build_file(), recipe)
        except OSError as error:
            path = self.path()
            if not path.exists():
                raise
            # With a full or read-only disk, the query needs more memory, but does not fail.
            warnings.warn(
                f"files next to {path} cannot be shared ({error}): this worker holds its own copy in memory",
                stacklevel=2,
            )
            return open_private_build_side(self.digest(), self.columns, recipe)

    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns, without an index."""
        path = self.path()
        return read_build_file(map_checked(path), str(path))


@dataclass(frozen=True)
class BroadcastFile(MappedFile):
    """The local file of a Spark broadcast."""

    NOT_IN_FINGERPRINT: ClassVar[Mapping[str, str]] = {"broadcast": "it has a path, which is in the fingerprint"}

    broadcast: Any

    def path(self) -> Path:
        """Return the path of this node's copy."""
        return Path(self.broadcast._path)


@dataclass(frozen=True)
class StreamedBroadcast(MappedFile):
    """The local file of a broadcast with consecutive Arrow streams, as the JVM wrote them.

    The first worker of a node derives a build file from it, with contiguous columns. `schema`: Spark's Arrow types.
    `crc`: the CRC-32 of the file.
    """

    broadcast_id: int
    schema: pa.Schema
    crc: int

    def path(self) -> Path:
        """Return the path of this node's copy."""
        from pyspark.core.broadcast import _broadcastRegistry

        return Path(_broadcastRegistry[self.broadcast_id]._path)

    def build_file(self) -> Path:
        """Return the build file; write it if no worker of this node has, or if it is damaged."""
        streams = self.path()
        build_path = streams.with_name(f"{streams.name}.{self.digest()[:16]}.{BUILD_SUFFIX}")

        def write() -> None:
            with atomic_file(build_path) as stream:
                write_build_file(self._table(), stream)

        read_published(build_path, write, map_checked)
        return build_path

    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns, made contiguous in this process's memory."""
        table = self._table()
        check_memory(table.num_rows, table.nbytes)
        sink = pa.BufferOutputStream()
        write_build_file(table, sink)
        return read_build_file(sink.getvalue(), str(self.path()))

    def _table(self) -> pa.Table:
        path = self.path()
        content = map_file(path)
        if zlib.crc32(content) != self.crc:
            raise BuildFileError(f"{path}: the checksum of the build side's rows is wrong: the file is damaged")
        return read_streamed_table(content, self.schema)


@dataclass(frozen=True)
class ArtifactFile(MappedFile):
    """A file added to a Spark Connect session."""

    name: str

    def path(self) -> Path:
        """Return the path of this node's copy."""
        from pyspark import SparkFiles

        return Path(SparkFiles.get(self.name))


@dataclass(frozen=True)
class BroadcastBytes(BuildSource):
    """The bytes of a build file in an encrypted broadcast: every worker has its own copy.

    `name` identifies the rows: between tasks, workers drop broadcasts and load them again as other objects.
    """

    NOT_IN_FINGERPRINT: ClassVar[Mapping[str, str]] = {"broadcast": "its name identifies it"}

    name: str
    broadcast: Any

    def digest(self) -> str:
        """Return a fingerprint of the broadcast."""
        return fingerprint_of(self)

    def open(self, recipe: IndexRecipe) -> BuildSide:
        """Return the build side, indexed in this process."""
        return open_private_build_side(self.digest(), self.columns, recipe)

    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns."""
        origin = "encrypted broadcast"
        return read_build_file(check_container(pa.py_buffer(self.broadcast.value), origin), origin)
