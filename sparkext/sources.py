"""Where a worker finds a published build side. Written on the driver, pickled into the pipeline's function."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from sparkext.build_file import read_build_file
from sparkext.index_store import BuildSide, IndexRecipe, file_identity, index_in_memory, open_build_side


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

    def open(self, recipe: IndexRecipe) -> BuildSide:
        path = self.path()
        try:
            return open_build_side(path, recipe)
        except OSError as error:
            if not path.exists():
                raise
            # A full or read-only disk costs memory here, not the query.
            warnings.warn(
                f"the index beside {path} cannot be shared ({error}): this worker holds a copy of its own in memory",
                stacklevel=2,
            )
            rows, columns = self.columns()
            return _private_build_side(f"{path} {file_identity(path)}", rows, columns, recipe)

    def columns(self) -> tuple[int, list[pa.Array]]:
        from sparkext.container import map_file

        path = self.path()
        return read_build_file(map_file(path), str(path))


@dataclass(frozen=True)
class BroadcastFile(_MappedFile):
    """The local file of a Spark broadcast."""

    broadcast: Any

    def path(self) -> Path:
        """Return this node's copy."""
        return Path(self.broadcast._path)


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
        rows, columns = self.columns()
        return _private_build_side(self.name, rows, columns, recipe)

    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns."""
        return read_build_file(pa.py_buffer(self.broadcast.value), "encrypted broadcast")


_PRIVATE_BUILD_SIDES = 8
_private: OrderedDict[tuple[str, str], BuildSide] = OrderedDict()


def _private_build_side(name: str, rows: int, columns: list[pa.Array], recipe: IndexRecipe) -> BuildSide:
    """Index a build side for this process alone, once for all of its tasks."""
    key = (name, recipe.digest)
    if key not in _private:
        _private[key] = index_in_memory(rows, columns, recipe)
    _private.move_to_end(key)
    while len(_private) > _PRIVATE_BUILD_SIDES:
        _private.popitem(last=False)
    return _private[key]
