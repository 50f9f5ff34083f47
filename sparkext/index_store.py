"""One index per build side and node: built by the first worker that needs it, mapped by all.

The index lies beside the build file, so it lives and dies with it, and so does the clustered copy of the columns that
build sides with many rows a key get.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from sparkext import __version__
from sparkext.build_file import read_build_file, write_build_file
from sparkext.container import (
    FORMAT_VERSION,
    TEMPORARY_SUFFIX,
    FileIdentity,
    atomic_file,
    file_identity,
    map_file,
)
from sparkext.index_file import AnyIndex, IndexInfo, read_index_file, write_index_file
from sparkext.kernels.all_rows_index import AllRowsIndex
from sparkext.kernels.dense_index import build_dense_index, key_range
from sparkext.kernels.gather import Column
from sparkext.kernels.hash_index import build_hash_index
from sparkext.kernels.index import JoinIndex, index_bytes
from sparkext.kernels.keys import EncodedKeys, cast_key, encode_keys, key_bounds, key_ranges
from sparkext.kernels.matches import Matches
from sparkext.kernels.nearest import NearestKeys, nearest
from sparkext.kernels.ordered_index import build_ordered_index
from sparkext.kernels.range_index import Candidates, RangeIndex, RangeKeys, build_range_index
from sparkext.kernels.row_ids import RowIds
from sparkext.memory import process_probe
from sparkext.plans.algorithm import BuildKeys, choose_index, worth_clustering
from sparkext.publication import LOCK_SUFFIX, publish_once

INDEX_SUFFIX = ".index"
COLUMNS_SUFFIX = ".columns"
_OPEN_BUILD_SIDES = 16
M = TypeVar("M", Matches, Matches | Candidates)
_BROADCAST = re.compile(r"broadcast_\d+_python(\.|$)")


@dataclass(frozen=True)
class IndexRecipe:
    """Everything that determines an index of a given build file.

    `key_columns` are positions in the build file, `key_types` the Arrow types in which keys are compared.
    `may_cluster`: the join gathers payload and does not ask which build rows it comes from.
    `bounds`: position and type of the columns that a range or as-of join compares, the one to order by first;
    `inverted`: the second of them is bounded from above only. `probe_ordered`: see `plans.algorithm.choose_index`.
    """

    key_columns: tuple[int, ...]
    key_types: tuple[pa.DataType, ...]
    null_safe: tuple[bool, ...]
    algorithm: str
    hash_mask: int
    may_cluster: bool = False
    bounds: tuple[tuple[int, pa.DataType], ...] = ()
    inverted: bool = False
    probe_ordered: bool = False

    @property
    def digest(self) -> str:
        """Name of the index among those of its build file. It changes with the package: no other version's is read."""
        parts = [
            __version__,
            FORMAT_VERSION,
            self.key_columns,
            [str(key_type) for key_type in self.key_types],
            self.null_safe,
            self.algorithm,
            self.hash_mask,
            self.may_cluster,
            [(column, str(bound_type)) for column, bound_type in self.bounds],
            self.inverted,
            self.probe_ordered,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class BuildSide:
    """A build side as a pipeline uses it: its columns, and the index over its keys. Both may be mapped files.

    `columns` hold the rows that matches speak of: those of the build file, or where `info.clustered` those of the
    copy in the order of keys. `reused`: the index was there before this task asked for it.
    """

    rows: int
    columns: Sequence[Column]
    index: AnyIndex
    info: IndexInfo
    reused: bool = False

    @classmethod
    def of(cls, rows: int, columns: Sequence[pa.Array], index: AnyIndex, info: IndexInfo) -> BuildSide:
        """Prepare the columns for gathers, once for all tasks of this process."""
        return cls(rows, [Column.of(column) for column in columns], index, info)

    def lookup(self, keys: EncodedKeys) -> Matches:
        """Return the match range of every probe key, in terms of `columns`."""
        assert not isinstance(self.index, RangeIndex)
        return self._in_columns(self.index.lookup(keys))

    def lookup_ranges(self, keys: RangeKeys) -> Matches | Candidates:
        """Return what is in the range of every probe row, in terms of `columns`."""
        assert isinstance(self.index, RangeIndex)
        return self._in_columns(self.index.lookup(keys))

    def lookup_nearest(self, keys: NearestKeys) -> Matches:
        """Return the nearest row of every probe row, in terms of `columns`."""
        assert isinstance(self.index, RangeIndex)
        return self._in_columns(nearest(self.index, keys))

    def _in_columns(self, found: M) -> M:
        return replace(found, rows=None) if self.info.clustered else found


def build_index(rows: int, columns: Sequence[pa.Array], recipe: IndexRecipe) -> tuple[AnyIndex, IndexInfo]:
    """Choose and build the index of a build side in this process."""
    started = time.perf_counter()
    if not recipe.key_columns and not recipe.bounds:
        return _described(AllRowsIndex(rows), "the join has no key", rows, started)
    key_columns = [
        cast_key(columns[column], key_type)
        for column, key_type in zip(recipe.key_columns, recipe.key_types, strict=True)
    ]
    ranges = key_ranges(key_columns, recipe.null_safe) if key_columns else None
    keys = encode_keys(key_columns, recipe.null_safe, ranges) if key_columns else EncodedKeys(rows, None, None, None)
    if recipe.bounds:
        compared = [cast_key(columns[column], bound_type) for column, bound_type in recipe.bounds]
        index: AnyIndex = build_range_index(
            compared, keys, lambda ordered: _equality_index(ordered, recipe)[0], recipe.inverted
        )
        reason = f"{len(compared)} compared column{'s' * (len(compared) > 1)}"
        if key_columns:
            reason += f" in {index.distinct:,} groups of equal keys"
    else:
        index, reason = _equality_index(keys, recipe)
    clustered = recipe.may_cluster and _worth_clustering(index, columns)
    if clustered:
        reason = f"{reason}; many rows a key: payload copied in the order of keys"
    index, info = _described(index, reason, rows, started)
    bounds = key_bounds(key_columns, recipe.null_safe)
    size = sum(column.nbytes for column in columns)
    return index, replace(info, key_ranges=ranges, key_bounds=bounds, build_bytes=size, clustered=clustered)


def _equality_index(keys: EncodedKeys, recipe: IndexRecipe) -> tuple[JoinIndex, str]:
    """Choose and build an index of these keys; return it and the reason for the choice."""
    facts = _facts(keys)
    headroom = process_probe().headroom()
    free = None if headroom is None else headroom.bytes
    choice = choose_index(recipe.algorithm, facts, free, recipe.probe_ordered)
    if choice.kind == "ordered":
        return build_ordered_index(keys), choice.reason
    if choice.kind == "dense":
        assert facts.smallest is not None and facts.largest is not None, "dense keys have bounds"
        return build_dense_index(keys, facts.smallest, facts.largest), choice.reason
    return build_hash_index(keys, recipe.hash_mask), choice.reason


def _worth_clustering(index: AnyIndex, columns: Sequence[pa.Array]) -> bool:
    rows = index.rows
    if rows is None or any(_is_large(column.type) for column in columns):
        return False
    distinct = index.distinct
    if _runs(rows) <= distinct:
        return False  # the rows of each key lie side by side as it is, or are one
    headroom = process_probe().headroom()
    free = None if headroom is None else headroom.bytes
    return worth_clustering(rows.size, distinct, sum(column.nbytes for column in columns), free)


def _runs(rows: RowIds) -> int:
    """Return how many runs of consecutive rows `rows` consists of."""
    return int(np.count_nonzero(np.diff(rows) != 1)) + min(rows.size, 1)


def _is_large(arrow_type: pa.DataType) -> bool:
    """Tell whether one array of all rows may hold more bytes than 32-bit offsets reach."""
    return bool(pa.types.is_large_string(arrow_type) or pa.types.is_large_binary(arrow_type))


def clustered(columns: Sequence[pa.Array], index: AnyIndex) -> list[pa.Array]:
    """Return the rows of the index, key by key: entry i of the index is row i of the result."""
    return [Column.of(column).take(index.rows, missing=False) for column in columns]


def index_in_memory(rows: int, columns: Sequence[pa.Array], recipe: IndexRecipe) -> BuildSide:
    """Index a build side in this process, for this process alone."""
    index, info = build_index(rows, columns, recipe)
    return BuildSide.of(rows, clustered(columns, index) if info.clustered else columns, index, info)


def _facts(keys: EncodedKeys) -> BuildKeys:
    valid = keys.length if keys.valid is None else int(keys.valid.sum())
    if keys.words is None:
        return BuildKeys(keys.length, valid, word=False)
    bounds = key_range(keys)
    if bounds is None:
        return BuildKeys(keys.length, valid, word=True)
    return BuildKeys(keys.length, valid, word=True, smallest=bounds[0], largest=bounds[1])


def _described(index: AnyIndex, reason: str, rows: int, started: float) -> tuple[AnyIndex, IndexInfo]:
    seconds = time.perf_counter() - started
    return index, IndexInfo(index.kind, reason, index_bytes(index), rows, seconds)


def open_build_side(path: Path, recipe: IndexRecipe) -> BuildSide:
    """Map a build file and its index, building the index first if no worker of this node has.

    Build sides stay open from task to task in a worker process; those whose file is gone are let go.
    """
    return _opened.get(path, recipe)


class _OpenBuildSides:
    """The build sides that this process has mapped, least recently used first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str], tuple[FileIdentity, BuildSide]] = OrderedDict()

    def get(self, path: Path, recipe: IndexRecipe) -> BuildSide:
        self._drop_vanished()
        key = (str(path), recipe.digest)
        identity = file_identity(path)
        entry = self._entries.get(key)
        if entry is None or entry[0] != identity:
            entry = (identity, _map_build_side(path, recipe))
            self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > _OPEN_BUILD_SIDES:
            self._entries.popitem(last=False)
        return entry[1]

    def _drop_vanished(self) -> None:
        for key in [key for key in self._entries if not Path(key[0]).exists()]:
            del self._entries[key]


_opened = _OpenBuildSides()


def index_path_of(path: Path, recipe: IndexRecipe) -> Path:
    """Return where the index of a build file lies.

    The identity of the build file is part of the name: should the file be replaced, the old index is not found.
    """
    identity = "-".join(f"{part:x}" for part in file_identity(path))
    return path.with_name(f"{path.name}.{identity}.{recipe.digest}{INDEX_SUFFIX}")


def _map_build_side(path: Path, recipe: IndexRecipe) -> BuildSide:
    rows, columns = read_build_file(map_file(path), str(path))
    index_path = index_path_of(path, recipe)
    columns_path = index_path.with_name(index_path.name + COLUMNS_SUFFIX)

    def build() -> tuple[AnyIndex, IndexInfo]:
        _remove_orphans(path)
        index, info = build_index(rows, columns, recipe)
        if info.clustered:
            # Before the index, and under its lock: who finds an index that says so finds the columns as well.
            with atomic_file(columns_path) as stream:
                names = [str(number) for number in range(len(columns))]
                write_build_file(pa.table(clustered(columns, index), names=names), stream)
        return index, info

    publish_index(index_path, build)
    index, info = read_index_file(map_file(index_path), str(index_path))
    if info.clustered:
        _, columns = read_build_file(map_file(columns_path), str(columns_path))
    return BuildSide.of(rows, columns, index, info)


def publish_index(index_path: Path, build: Callable[[], tuple[AnyIndex, IndexInfo]]) -> bool:
    """Make sure that `index_path` exists, whole. Return whether this process built it (see `publish_once`)."""

    def write() -> None:
        index, info = build()
        with atomic_file(index_path) as stream:
            write_index_file(index, info, stream)

    return publish_once(index_path, write)


def remove_with_indexes(path: Path) -> None:
    """Delete a build file and everything beside it that belongs to it. What is mapped stays readable."""
    suffixes = (INDEX_SUFFIX, COLUMNS_SUFFIX, LOCK_SUFFIX, TEMPORARY_SUFFIX)
    for sibling in path.parent.iterdir():
        if sibling.name.startswith(f"{path.name}.") and sibling.name.endswith(suffixes):
            sibling.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _remove_orphans(path: Path) -> None:
    """Delete what belongs to broadcasts that Spark has dropped from the executor whose broadcast `path` belongs to.

    Spark deletes the broadcasts' own files, and knows nothing of what lies beside them. It spreads an executor's files
    over folders that lie side by side.
    """
    if not _BROADCAST.match(path.name):
        return
    for file in path.parent.parent.glob("*/broadcast_*_python.*"):
        if not file.with_name(file.name.partition(".")[0]).exists():
            file.unlink(missing_ok=True)
