"""The ordered index of the sort-merge join: distinct keys in order, each with its range of build rows.

    keys (sorted, distinct)    starts            rows
    ┌────┬────┬────┐           ┌───┬───┬───┬───┐ ┌───┬───┬───┬───┐
    │ -3 │  7 │ 40 │           │ 0 │ 1 │ 3 │ 4 │ │ 5 │ 0 │ 2 │ 1 │
    └────┴────┴────┘           └───┴───┴───┴───┘ └───┴───┴───┴───┘
      key 7 matches rows[1..2] = 0 and 2

A morsel whose keys ascend is merged: each search gallops on from the end of the last one (exponential steps, then
bisection), which is linear for dense matches and logarithmic for sparse ones. Any other morsel is searched by
bisection, in groups of 16 searches that descend together, so that their cache misses overlap. Byte-string keys are
ordered by their bytes.
If each key has one row, `starts` is None, and if the build side is sorted already, `rows` is None. Then the index is
little more than the keys, and needs much less memory than a hash index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array, VarBytes, as_binary, view_var_bytes
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.indexes.array_index import ArrayIndex
from sparkext.kernels.indexes.matches import Matches
from sparkext.kernels.keys.bytes_equal import compare_spans
from sparkext.kernels.keys.normalised import NormalisedKeys
from sparkext.kernels.runtime.intrinsics import prefetch
from sparkext.kernels.runtime.jit import freeze, kernel
from sparkext.kernels.sort.radix_sort import is_sorted, sort_words

_LANES = 16


@dataclass(frozen=True)
class OrderedIndex(ArrayIndex):
    """See the module's drawing. `words` or `key_bytes` has the distinct keys, depending on their layout.

    `row_bytes`: width of the build side's row ids.
    """

    kind: ClassVar[str] = "ordered"

    words: Int64Array | None
    key_bytes: VarBytes | None
    starts: RowIds | None
    rows: RowIds | None
    row_bytes: int

    @property
    def distinct(self) -> int:
        """The number of distinct keys."""
        keys = self.key_bytes.offsets[1:] if self.words is None and self.key_bytes is not None else self.words
        return 0 if keys is None else keys.size

    def lookup(self, keys: NormalisedKeys) -> Matches:
        """Return the match range of every probe key; a key that is not valid by `keys.valid` matches nothing."""
        group = np.empty(keys.length, dtype=f"i{self.row_bytes}")
        if self.words is not None:
            assert keys.words is not None, "probe and build keys have one layout"
            search = _merge_words if is_sorted(keys.words) else _search_words
            search(keys.words, keys.mask, self.words, group)
        else:
            assert keys.rows is not None and self.key_bytes is not None
            _search_bytes(keys.rows.offsets, keys.rows.data, keys.mask, *self.key_bytes, group)
        return self._ranges(group)

    def _ranges(self, group: RowIds) -> Matches:
        if self.starts is None:
            matched = int(np.count_nonzero(group >= 0))
            if self.rows is None:
                return Matches(freeze(group), None, None, matched, matched)
            first = np.empty_like(group)
            _translate(group, self.rows, first)
            return Matches(freeze(first), None, None, matched, matched)
        first, counts = np.empty_like(group), np.empty_like(group)
        matched, pairs = _group_ranges(group, self.starts, first, counts)
        return Matches(freeze(first), freeze(counts), self.rows, matched, pairs)


def build_ordered_index(keys: NormalisedKeys, wide: bool = False, threads: int = 1) -> OrderedIndex:
    """Sort the valid keys of a build side. `wide` forces eight-byte row ids, for tests."""
    valid_rows = (
        np.arange(keys.length, dtype=np.int64) if keys.valid is None else np.flatnonzero(keys.valid).astype(np.int64)
    )
    if keys.words is not None:
        words = keys.words if keys.valid is None else freeze(keys.words[valid_rows])
        words, rows = sort_words(words, freeze(valid_rows.astype(row_id_dtype(keys.length, wide))), threads)
        boundary = np.empty(words.size, dtype=np.uint8)
        groups = _mark_words(words, boundary)
        starts = _find_starts(boundary, groups)
        distinct = words if groups == words.size else freeze(words[starts[:-1]])
        return _assemble(distinct, None, starts, rows, keys.length, wide)
    assert keys.rows is not None
    rows = freeze(_sort_bytes(keys.rows, valid_rows))
    boundary = np.empty(rows.size, dtype=np.uint8)
    groups = _mark_bytes(keys.rows.offsets, keys.rows.data, rows, boundary)
    starts = _find_starts(boundary, groups)
    return _assemble(None, _take_bytes(keys.rows, rows[starts[:-1]]), starts, rows, keys.length, wide)


def _assemble(
    words: Int64Array | None,
    key_bytes: VarBytes | None,
    starts: Int64Array,
    rows: RowIds,
    build_rows: int,
    wide: bool,
) -> OrderedIndex:
    in_order = rows.size == build_rows and is_sorted(rows)
    unique = starts.size == rows.size + 1
    dtype = row_id_dtype(build_rows, wide)
    return OrderedIndex(
        words,
        key_bytes,
        None if unique else freeze(starts.astype(dtype)),
        None if in_order else freeze(rows.astype(dtype, copy=False)),
        dtype.itemsize,
    )


def _find_starts(boundary: UInt8Array, groups: int) -> Int64Array:
    starts = np.empty(groups + 1, dtype=np.int64)
    starts[:-1] = np.flatnonzero(boundary)
    starts[-1] = boundary.size
    return starts


def _sort_bytes(source: VarBytes, valid_rows: Int64Array) -> Int64Array:
    """Return the rows ordered by their bytes, ties by row."""
    valid_bytes = as_binary(source).take(pa.array(valid_rows))
    order = pc.array_sort_indices(valid_bytes).to_numpy()
    return valid_rows[order]


def _take_bytes(source: VarBytes, rows: Int64Array) -> VarBytes:
    return view_var_bytes(as_binary(source).take(pa.array(rows)))


@kernel
def _mark_words(words: Int64Array, boundary: UInt8Array) -> int:
    """boundary[i] = 1 if word i differs from the word before it; return the number of distinct words."""
    groups = 0
    for i in range(words.size):
        new = i == 0 or words[i] != words[i - 1]
        boundary[i] = new
        groups += new
    return groups


@kernel
def _mark_bytes(offsets: Int64Array, data: UInt8Array, rows: Int64Array, boundary: UInt8Array) -> int:
    """boundary[i] = 1 if, in row order `rows`, byte string i differs from the one before; return how many do."""
    groups = 0
    for i in range(rows.size):
        new = True
        if i > 0:
            a, b = rows[i - 1], rows[i]
            new = compare_spans(data, offsets[a], offsets[a + 1], data, offsets[b], offsets[b + 1]) != 0
        boundary[i] = new
        groups += new
    return groups


@kernel
def _merge_words(words: Int64Array, valid: UInt8Array, keys: Int64Array, group: RowIds) -> None:
    """group[i] = position of words[i] in `keys`, or -1. Both ascend, including words that are not valid."""
    all_valid = valid.size == 0
    size = keys.size
    at = 0
    for i in range(words.size):
        word = words[i]
        if at < size and keys[at] < word:
            step = 1
            while at + step < size and keys[at + step] < word:
                at += step
                step <<= 1
            high = min(at + step, size)
            at += 1
            while at < high:
                middle = (at + high) >> 1
                if keys[middle] < word:
                    at = middle + 1
                else:
                    high = middle
        hit = at < size and keys[at] == word and (all_valid or valid[i] != 0)
        group[i] = at if hit else -1


@kernel
def _search_words(words: Int64Array, valid: UInt8Array, keys: Int64Array, group: RowIds) -> None:
    """group[i] = position of words[i] in `keys`, or -1, by bisection, for `_LANES` words in step."""
    all_valid = valid.size == 0
    size = keys.size
    low = np.empty(_LANES, dtype=np.int64)
    for base in range(0, words.size, _LANES):
        width = min(_LANES, words.size - base)
        for lane in range(width):
            low[lane] = 0
        length = size
        while length > 1:
            half = length >> 1
            length -= half
            quarter = length >> 1
            for lane in range(width):
                # Branch-free step: mispredicted branches would cost more than the comparison.
                low[lane] += half * np.int64(keys[low[lane] + half - 1] < words[base + lane])
                prefetch(keys, low[lane] + quarter - 1)
        for lane in range(width):
            i = base + lane
            at = low[lane]
            hit = size > 0 and keys[at] == words[i] and (all_valid or valid[i] != 0)
            group[i] = at if hit else -1


@kernel
def _search_bytes(
    offsets: Int64Array,
    data: UInt8Array,
    valid: UInt8Array,
    key_offsets: Int64Array,
    key_data: UInt8Array,
    group: RowIds,
) -> None:
    """group[i] = position of byte string i among the sorted keys, or -1.

    A search first tests the position of the last one, so that runs of equal keys cost little.
    """
    all_valid = valid.size == 0
    size = key_offsets.size - 1
    last = 0
    for i in range(group.size):
        group[i] = -1
        if size == 0 or not (all_valid or valid[i] != 0):
            continue
        start, end = offsets[i], offsets[i + 1]
        order = compare_spans(data, start, end, key_data, key_offsets[last], key_offsets[last + 1])
        if order == 0:
            group[i] = last
            continue
        low, high = (0, last) if order < 0 else (last + 1, size)
        while low < high:
            middle = (low + high) >> 1
            order = compare_spans(data, start, end, key_data, key_offsets[middle], key_offsets[middle + 1])
            if order == 0:
                group[i] = middle
                break
            if order > 0:
                low = middle + 1
            else:
                high = middle
        last = group[i] if group[i] >= 0 else min(low, size - 1)


@kernel
def _translate(group: RowIds, rows: RowIds, first: RowIds) -> None:
    """first[i] = build row of group[i], which has one row, or -1."""
    for i in range(group.size):
        first[i] = np.int64(rows[group[i]]) if group[i] >= 0 else -1


@kernel
def _group_ranges(group: RowIds, starts: RowIds, first: RowIds, counts: RowIds) -> tuple[int, int]:
    """Turn group positions into match ranges; return (probe rows matched, pairs)."""
    matched = 0
    pairs = 0
    for i in range(group.size):
        g = group[i]
        if g < 0:
            first[i] = -1
            counts[i] = 0
        else:
            first[i] = starts[g]
            counts[i] = starts[g + 1] - starts[g]
            matched += 1
            pairs += counts[i]
    return matched, pairs
