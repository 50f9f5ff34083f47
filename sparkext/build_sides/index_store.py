"""One index per build side and node: built by the first worker that needs it, mapped by all.

The index of a build file is stored next to it and is deleted with it. An index that is cached for later queries also
stores the columns. An index with many rows per key may store a copy of the columns in key order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from sparkext.build_sides.file import read_build_file
from sparkext.build_sides.index_builder import BuiltIndex, index_columns
from sparkext.build_sides.index_file import AnyIndex, IndexInfo, read_index_file, write_index_file
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.indexes.matches import Matches
from sparkext.kernels.indexes.nearest import NearestKeys, find_nearest
from sparkext.kernels.indexes.range_index import Candidates, RangeIndex, RangeKeys
from sparkext.kernels.keys.normalised import NormalisedKeys
from sparkext.rows.contiguous import make_contiguous
from sparkext.storage.container import TEMPORARY_SUFFIX, FileIdentity, atomic_file, identify_file, map_checked
from sparkext.storage.last_used import LruCache
from sparkext.storage.publication import LOCK_SUFFIX, read_published

INDEX_SUFFIX = ".index"
_OPEN_BUILD_SIDES = 16
M = TypeVar("M", Matches, Matches | Candidates)
_BROADCAST = re.compile(r"broadcast_\d+_python(\.|$)")


@dataclass(frozen=True)
class BuildSide:
    """A build side as a pipeline uses it: its columns, and the index over its keys. Both may be mapped files.

    `columns`, by index, contain the rows to which matches refer: of the build file or, if `info.clustered`, of a copy
    in key order. A copy has only the columns that joins gather. `reused`: the index existed before this task requested
    it. `is_partition`: the build side is partitioned, and other tasks have its other rows.
    """

    rows: int
    columns: Mapping[int, Column]
    index: AnyIndex
    info: IndexInfo
    reused: bool = False
    is_partition: bool = False

    @classmethod
    def of(cls, rows: int, columns: Mapping[int, pa.Array], index: AnyIndex, info: IndexInfo) -> BuildSide:
        """Prepare the columns for gathers, once for all tasks of this process."""
        return cls(rows, {number: Column.of(column) for number, column in columns.items()}, index, info)

    def lookup(self, keys: NormalisedKeys) -> Matches:
        """Return the match range of every probe key, as rows of `columns`."""
        assert not isinstance(self.index, RangeIndex)
        return self._translate_matches(self.index.lookup(keys))

    def lookup_ranges(self, keys: RangeKeys) -> Matches | Candidates:
        """Return the matches in the range of every probe row, as rows of `columns`."""
        assert isinstance(self.index, RangeIndex)
        return self._translate_matches(self.index.lookup(keys))

    def lookup_nearest(self, keys: NearestKeys) -> Matches:
        """Return the nearest row for every probe row, as rows of `columns`."""
        assert isinstance(self.index, RangeIndex)
        return self._translate_matches(find_nearest(self.index, keys))

    def _translate_matches(self, matches: M) -> M:
        return replace(matches, rows=None) if self.info.clustered else matches


def index_in_memory(rows: int, columns: Sequence[pa.Array], recipe: IndexRecipe) -> BuildSide:
    """Index a build side in this process, without sharing it."""
    built = index_columns(rows, list(columns), recipe, threads=1, keep=False)
    stored_columns = (
        enumerate(columns)
        if built.columns is None
        else ((number, make_contiguous(column)) for number, column in built.columns)
    )
    return BuildSide.of(rows, dict(stored_columns), built.index, built.info)


def open_build_side(path: Path, recipe: IndexRecipe) -> BuildSide:
    """Map a build file and its index, building the index first if no worker of this node has.

    Build sides stay open across the tasks of a worker process; they are released when their file has been deleted.
    """
    return _opened.get(path, recipe.digest, partial(_map_build_side, path, recipe))


def open_cached_index(path: Path, build: Callable[[], BuiltIndex]) -> BuildSide:
    """Map an index that stores its columns, building it first if it does not exist.

    A damaged index is built again. The build side stays open as in `open_build_side`.
    """
    return read_published(
        path, partial(_write, path, build), lambda path: _opened.get(path, "", partial(_map_cached_index, path))
    )


class _OpenBuildSides:
    """The build sides that this process has mapped."""

    def __init__(self) -> None:
        self._entries: LruCache[tuple[str, str], tuple[FileIdentity, BuildSide]] = LruCache(_OPEN_BUILD_SIDES)

    def get(self, path: Path, name: str, load: Callable[[], BuildSide]) -> BuildSide:
        """Return the result of `load` for the file under this name, cached as long as the file is the same."""
        self._drop_vanished()
        key = (str(path), name)
        identity = identify_file(path)
        if key not in self._entries or self._entries[key][0] != identity:
            self._entries[key] = (identity, load())
        return self._entries[key][1]

    def _drop_vanished(self) -> None:
        for key in self._entries:
            if not Path(key[0]).exists():
                del self._entries[key]


_opened = _OpenBuildSides()


def index_path_of(path: Path, recipe: IndexRecipe) -> Path:
    """Return the path of the index of a build file.

    The name contains the identity of the build file: if the file is replaced, the old index is not found.
    """
    identity = "-".join(f"{part:x}" for part in identify_file(path))
    return path.with_name(f"{path.name}.{identity}.{recipe.digest}{INDEX_SUFFIX}")


def _map_build_side(path: Path, recipe: IndexRecipe) -> BuildSide:
    rows, columns = read_build_file(map_checked(path), str(path))

    def build() -> BuiltIndex:
        _remove_orphans(path)
        return index_columns(rows, list(columns), recipe, threads=1, keep=False)

    index_path = index_path_of(path, recipe)
    index, info, stored_columns = read_published(index_path, partial(_write, index_path, build), _read_index)
    return BuildSide.of(rows, dict(enumerate(columns)) if stored_columns is None else stored_columns, index, info)


def _map_cached_index(path: Path) -> BuildSide:
    index, info, columns = _read_index(path)
    assert columns is not None, "kept with the index"
    return BuildSide.of(info.build_rows, columns, index, info)


def _read_index(path: Path) -> tuple[AnyIndex, IndexInfo, dict[int, pa.Array] | None]:
    return read_index_file(map_checked(path), str(path))


def _write(index_path: Path, build: Callable[[], BuiltIndex]) -> None:
    built = build()
    with atomic_file(index_path) as stream:
        write_index_file(built.index, built.info, stream, built.columns)


def remove_with_indexes(path: Path) -> None:
    """Delete a build file and the files that belong to it in its folder. Mapped files stay readable."""
    suffixes = (INDEX_SUFFIX, LOCK_SUFFIX, TEMPORARY_SUFFIX)
    for sibling in path.parent.iterdir():
        if sibling.name.startswith(f"{path.name}.") and sibling.name.endswith(suffixes):
            sibling.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _remove_orphans(path: Path) -> None:
    """Delete files that belong to broadcasts that Spark has removed from the executor to which `path` belongs.

    Spark deletes the files of broadcasts, but not the indexes next to them. It distributes an executor's files over
    sibling folders.
    """
    if not _BROADCAST.match(path.name):
        return
    for file in path.parent.parent.glob("*/broadcast_*_python.*"):
        if not file.with_name(file.name.partition(".")[0]).exists():
            file.unlink(missing_ok=True)
