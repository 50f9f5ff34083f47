"""Chooses and builds the index of a build side, and orders its columns for gathers if that is worthwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from sparkext.build_sides.file import WAYS_OUT
from sparkext.build_sides.index_file import AnyIndex, IndexInfo
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.errors import BuildSideTooLargeError
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.columns.row_ids import RowIds, count_runs
from sparkext.kernels.indexes.all_rows_index import AllRowsIndex
from sparkext.kernels.indexes.bounds import is_ranked
from sparkext.kernels.indexes.dense_index import build_dense_index, key_range
from sparkext.kernels.indexes.hash_index import build_hash_index
from sparkext.kernels.indexes.key_set import build_key_set
from sparkext.kernels.indexes.ordered_index import build_ordered_index
from sparkext.kernels.indexes.protocols import JoinIndex, index_bytes
from sparkext.kernels.indexes.range_index import RangeIndex, build_range_index
from sparkext.kernels.keys.normalised import (
    NormalisedKeys,
    cast_key,
    key_bounds,
    key_ranges,
    normalise_keys,
    uses_words,
)
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.runtime.threads import map_ahead
from sparkext.memory.freed import headroom_for
from sparkext.plans.adaptive.index_choice import (
    CLUSTERED_SHARE,
    HASH_BUILD_BYTES_PER_ROW,
    RANK_BYTES_PER_ROW,
    RANK_COPIES,
    SORT_BYTES_PER_ROW,
    BuildKeys,
    choose_index,
    fits,
    is_worth_clustering,
)
from sparkext.rows.contiguous import make_contiguous, needs_wide_offsets


@dataclass(frozen=True)
class BuiltIndex:
    """An index, its description, and the columns to store with it, as pairs of column index and array, one at a time.

    `columns` is None if the build file has the columns already, in the row order of the index. The arrays need not be
    contiguous: writing makes them so.
    """

    index: AnyIndex
    info: IndexInfo
    columns: Iterator[tuple[int, pa.Array | pa.ChunkedArray]] | None = None


def index_columns(
    rows: int, columns: list[pa.Array | pa.ChunkedArray], recipe: IndexRecipe, threads: int, keep: bool
) -> BuiltIndex:
    """Index a build side with `threads` threads. `keep`: the index has to store the columns; no build file has them.

    Indexed columns are replaced in the list by contiguous ones, so that their chunks can be freed.
    """
    indexed = recipe.indexed
    for number, array in zip(
        indexed, map_ahead(lambda number: make_contiguous(columns[number]), indexed, threads), strict=True
    ):
        columns[number] = array
    index, info = build_index(rows, columns, recipe, threads)
    if not info.clustered and not keep:
        return BuiltIndex(index, info)
    if not info.clustered:
        return BuiltIndex(index, info, ((number, columns[number]) for number in recipe.gathered))
    in_order = partial(_cluster_column, index.rows)
    arrays = map_ahead(lambda number: in_order(columns[number]), recipe.gathered, threads)
    index = _drop_row_ids(index)
    return BuiltIndex(index, replace(info, bytes=index_bytes(index)), zip(recipe.gathered, arrays, strict=True))


def _cluster_column(rows: RowIds | None, column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column in the row order of an index, key by key: row i belongs to entry i of the index."""
    return Column.of(make_contiguous(column)).take(rows, missing=False)


def _drop_row_ids(index: AnyIndex) -> AnyIndex:
    """Return the same index with empty row ids: if the columns are clustered, its entries are the rows.

    The ids are empty, because None would mean that every key has one row.
    """
    if index.rows is None:
        return index
    none = freeze(np.empty(0, dtype=index.rows.dtype))
    if isinstance(index, RangeIndex):
        groups = index.groups if index.groups.rows is None else replace(index.groups, rows=none)  # type: ignore[type-var]
        return replace(index, rows=none, groups=groups)
    without_ids: AnyIndex = replace(index, rows=none)  # type: ignore[type-var]
    return without_ids


def build_index(
    rows: int, columns: Sequence[pa.Array | pa.ChunkedArray], recipe: IndexRecipe, threads: int = 1
) -> tuple[AnyIndex, IndexInfo]:
    """Choose and build the index of a build side in this process. The columns that it reads must be contiguous."""
    started = time.perf_counter()
    size = sum(column.nbytes for column in columns)
    if not recipe.key_columns and not recipe.bounds:
        every_row, info = _describe_index(AllRowsIndex(rows), "the join has no key", rows, started)
        return every_row, replace(info, build_bytes=size)
    key_columns = [
        cast_key(columns[column], key_type)
        for column, key_type in zip(recipe.key_columns, recipe.key_types, strict=True)
    ]
    ranges = key_ranges(key_columns, recipe.null_safe) if key_columns else None
    if ranges is None and not uses_words([column.type for column in key_columns], recipe.null_safe):
        _require_memory(sum(column.nbytes for column in key_columns) + 16 * rows, rows, "combining its keys")
    if recipe.bounds:
        ranked = [columns[column].nbytes for column, bound_type in recipe.bounds if is_ranked(bound_type)]
        ranking = RANK_BYTES_PER_ROW * rows * len(ranked) + RANK_COPIES * sum(ranked)
        _require_memory(SORT_BYTES_PER_ROW * rows + ranking, rows, "sorting its rows")
        compared = [cast_key(columns[column], bound_type) for column, bound_type in recipe.bounds]
        index: AnyIndex = build_range_index(
            compared,
            # No local variable refers to the normalised keys, so that they are freed when they have been grouped.
            normalise_keys(key_columns, recipe.null_safe, ranges)
            if key_columns
            else NormalisedKeys(rows, None, None, None),
            lambda group_keys: _build_equality_index(group_keys, recipe, threads)[0],
            recipe.inverted,
            threads=threads,
        )
        reason = f"{len(compared)} compared column{'s' * (len(compared) > 1)}"
        if key_columns:
            reason += f" in {index.distinct:,} groups of equal keys"
    else:
        index, reason = _build_equality_index(normalise_keys(key_columns, recipe.null_safe, ranges), recipe, threads)
    clustered = recipe.may_cluster and _is_worth_clustering(index, columns)
    if clustered:
        reason = f"{reason}; many rows per key: payload copied in the order of keys"
    index, info = _describe_index(index, reason, rows, started)
    bounds = key_bounds(key_columns, recipe.null_safe)
    return index, replace(info, key_ranges=ranges, key_bounds=bounds, build_bytes=size, clustered=clustered)


def _build_equality_index(keys: NormalisedKeys, recipe: IndexRecipe, threads: int) -> tuple[JoinIndex, str]:
    """Choose and build an index of these keys; return it and the reason for the choice."""
    facts = _collect_key_facts(keys)
    free = headroom_for(HASH_BUILD_BYTES_PER_ROW * keys.length)
    choice = choose_index(recipe.algorithm, facts, free, recipe.probe_ordered, recipe.rows_matter)
    _require_memory(choice.bytes, keys.length, f"building the index ({choice.kind})")
    if choice.kind == "ordered":
        return build_ordered_index(keys, threads=threads), choice.reason
    if choice.kind == "hash":
        return build_hash_index(keys, recipe.hash_mask), choice.reason
    assert facts.smallest is not None and facts.largest is not None, "dense keys have bounds"
    if choice.kind == "key set":
        return build_key_set(keys, facts.smallest, facts.largest), choice.reason
    return build_dense_index(keys, facts.smallest, facts.largest), choice.reason


def _is_worth_clustering(index: AnyIndex, columns: Sequence[pa.Array | pa.ChunkedArray]) -> bool:
    rows = index.rows
    if rows is None or any(needs_wide_offsets(column) for column in columns):
        return False
    distinct = index.distinct
    if count_runs(rows) <= distinct:
        return False  # the rows of each key are consecutive already, or each key has one row
    size = sum(column.nbytes for column in columns)
    return is_worth_clustering(rows.size, distinct, size, headroom_for(int(size / CLUSTERED_SHARE)))


def _require_memory(needed: int, rows: int, purpose: str) -> None:
    """Check that there is memory for the next step: the system kills a process that exceeds its memory.

    Raises
    ------
    BuildSideTooLargeError
        There is not enough memory.
    """
    free = headroom_for(needed)
    if not fits(needed, free):
        raise BuildSideTooLargeError(
            f"the build side does not fit in memory: it has {rows:,} rows, and {purpose} takes up to {needed:,} bytes,"
            f" but only {free:,} are free. {WAYS_OUT}"
        )


def _collect_key_facts(keys: NormalisedKeys) -> BuildKeys:
    valid = keys.length if keys.valid is None else int(keys.valid.sum())
    if keys.words is None:
        assert keys.rows is not None
        offsets = keys.rows.offsets
        return BuildKeys(keys.length, valid, word=False, key_bytes=int(offsets[-1] - offsets[0]))
    bounds = key_range(keys)
    if bounds is None:
        return BuildKeys(keys.length, valid, word=True)
    return BuildKeys(keys.length, valid, word=True, smallest=bounds[0], largest=bounds[1])


def _describe_index(index: AnyIndex, reason: str, rows: int, started: float) -> tuple[AnyIndex, IndexInfo]:
    seconds = time.perf_counter() - started
    return index, IndexInfo(index.kind, reason, index_bytes(index), rows, seconds)
