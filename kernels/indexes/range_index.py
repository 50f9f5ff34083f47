"""The index of range joins: build rows in groups of equal keys, ordered by a compared column within each group.

    SELECT … FROM visits v JOIN prices p ON v.item = p.item AND v.day >= p.first_day AND v.day <= p.last_day

    groups (by item)         entries (by first_day)     words    second (last_day)     rows
    ┌──────┬─────────┐       item 4  ┌ 0                 3        9                    7
    │ 4    │ 0, 2    │               └ 1                 8        12                   2
    │ 9    │ 2, 3    │       item 9  ┌ 2                 1        30                   0
    └──────┴─────────┘               │ 3                 5        6                    9
                                     └ 4                 9        11                   4

A probe row finds its group through another index, unless all rows are one group. In the group it finds, by bisection,
the range of entries whose word is in its interval. With one compared column these entries are its matches. With two,
such as the starts and the ends of intervals, the second column narrows the entries down: `Candidates` emits the entries
of the range whose second word is at least the probe row's lower bound, and `block_maxima` skips all other entries. A
second column that is only bounded from above is stored inverted, so that it is bounded from below. If it is bounded on
both sides, each entry is compared with the upper bound.

Rows with a null in a compared column match nothing and are left out. Memory per row: 8 bytes for each compared column,
4 for the row id, and the index of the groups. The build side is sorted once, whatever the lengths and overlaps of
intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import (
    Int64Array,
    UInt8Array,
    VarBytes,
    allocate_array,
    as_binary,
    unpack_validity,
    view_var_bytes,
)
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.indexes.all_rows_index import AllRowsIndex
from sparkext.kernels.indexes.block_maxima import BLOCK, BlockMaxima, find_last_at_least
from sparkext.kernels.indexes.bounds import Bound, Intervals, encode_bound_column, intersect_bounds
from sparkext.kernels.indexes.dense_index import DenseIndex
from sparkext.kernels.indexes.hash_index import HashIndex
from sparkext.kernels.indexes.matches import Cursor, Matches, Pairs
from sparkext.kernels.indexes.ordered_index import OrderedIndex
from sparkext.kernels.indexes.protocols import JoinIndex, freeze_all
from sparkext.kernels.keys.normalised import NormalisedKeys
from sparkext.kernels.runtime.intrinsics import prefetch
from sparkext.kernels.runtime.jit import NO_MASK, AnyArray, freeze, kernel
from sparkext.kernels.runtime.threads import run_in_parts
from sparkext.kernels.sort.radix_sort import is_sorted, sort_segments, sort_words

_LANES = 16
_GROUPS: tuple[type[JoinIndex], ...] = (AllRowsIndex, DenseIndex, HashIndex, OrderedIndex)


@dataclass(frozen=True)
class RangeKeys:
    """The keys of a number of probe rows: equal keys, and the bounds of each compared column (maybe none)."""

    equal: NormalisedKeys
    bounds: Sequence[Sequence[Bound]]


@dataclass(frozen=True)
class Candidates:
    """Ranges of entries, some of which match: the counterpart of `Matches` if a second column is compared.

    - `first`, `counts`: RowIds[n], the range of each probe row; -1 and 0 if it is empty.
    - `least`, `most`: int64[n], the closed interval of matching second words.
    - `bounded`: whether any `most` is an actual bound.
    - `order`: int64[n], the probe row of each element of these arrays, or None if they are in the order of probe rows.
    """

    first: RowIds
    counts: RowIds
    rows: RowIds | None
    least: Int64Array
    most: Int64Array
    bounded: bool
    maxima: BlockMaxima
    order: Int64Array | None = None

    def any(self) -> Matches:
        """Return one match per probe row that has any, for joins that only test whether there is a match."""
        first = np.empty_like(self.first)
        maxima = self.maxima
        matched = _find_any(
            self.first, self.counts, self.least, self.most, maxima.words, maxima.levels, maxima.prefix, first
        )
        if self.order is not None:
            ordered_first, first = first, np.empty_like(first)
            first[self.order] = ordered_first
        return Matches(freeze(first), None, None, matched, matched)

    def probe(self, how: str, cursor: Cursor, budget: int) -> tuple[Pairs, Cursor, bool]:
        """Return at most `budget` pairs from `cursor` on, the next cursor, and whether these pairs are the last.

        `how` is `inner` or `left`. Unlike in `matches.probe`, the number of pairs is unknown until the last is found.
        The offset of a cursor counts visited entries of the range, not matches.
        """
        probe_rows = np.empty(budget, dtype=row_id_dtype(self.first.size, wide=self.first.dtype == np.int64))
        build_rows = np.empty(budget, dtype=self.first.dtype)
        maxima = self.maxima
        produced, row, offset = _stab(
            self.first,
            self.counts,
            freeze(np.empty(0, dtype=self.first.dtype)) if self.rows is None else self.rows,
            self.rows is None,
            self.least,
            self.most,
            self.bounded,
            maxima.words,
            maxima.levels,
            maxima.prefix,
            how == "left",
            cursor.row,
            cursor.offset,
            probe_rows,
            build_rows,
        )
        rows = probe_rows[:produced]
        if self.order is not None:
            rows = self.order[rows].astype(rows.dtype)
        pairs = Pairs(produced, rows, build_rows[:produced])
        return pairs, Cursor(row, offset), row == self.first.size


@dataclass(frozen=True)
class RangeIndex:
    """See the module's drawing.

    `groups` finds entries by equal keys. `words` has the first compared column's word of each entry. `maxima` has the
    words of the second compared column and their maxima, None without such a column; if `inverted`, these words are
    complements. `ranked` has the distinct values of each column that is compared by rank (see `bounds`). `rows` has the
    build row of each entry, None if entry i is build row i.
    """

    kind: ClassVar[str] = "range"

    groups: JoinIndex
    words: Int64Array
    maxima: BlockMaxima | None
    inverted: bool
    ranked: tuple[VarBytes | None, ...]
    rows: RowIds | None

    @property
    def arrays(self) -> dict[str, AnyArray]:
        """The flat arrays of the index, by name."""
        arrays: dict[str, AnyArray] = {f"groups.{name}": array for name, array in self.groups.arrays.items()}
        arrays["words"] = self.words
        if self.maxima is not None:
            arrays.update({f"maxima.{name}": array for name, array in vars(self.maxima).items()})
        for number, values in enumerate(self.ranked):
            if values is not None:
                arrays.update({f"ranked.{number}.{name}": array for name, array in values._asdict().items()})
        if self.rows is not None and self.groups.rows is None:
            arrays["rows"] = self.rows
        return arrays

    @property
    def attributes(self) -> dict[str, int]:
        """The scalars of the index, by name."""
        return {
            **{f"groups.{name}": value for name, value in self.groups.attributes.items()},
            "group_kind": _GROUPS.index(type(self.groups)),
            "columns": len(self.ranked),
            "inverted": int(self.inverted),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, AnyArray], attributes: dict[str, int]) -> RangeIndex:
        """Rebuild the index around arrays that may be mapped read-only."""
        arrays = freeze_all(arrays)
        groups: JoinIndex = _GROUPS[attributes["group_kind"]].from_arrays(
            _select_prefixed("groups.", arrays), _select_prefixed("groups.", attributes)
        )
        maxima = _select_prefixed("maxima.", arrays)
        ranked = [_select_prefixed(f"ranked.{number}.", arrays) for number in range(attributes["columns"])]
        return cls(
            groups,
            arrays["words"],
            BlockMaxima(**maxima) if maxima else None,
            bool(attributes["inverted"]),
            tuple(VarBytes(**values) if values else None for values in ranked),
            groups.rows if groups.rows is not None else arrays.get("rows"),
        )

    @property
    def distinct(self) -> int:
        """The number of groups."""
        return self.groups.distinct

    def lookup(self, keys: RangeKeys) -> Matches | Candidates:
        """Return the matches of every probe row. A row with a null in a compared value matches nothing."""
        first, counts = self._ranges(keys.equal)
        intervals = [
            intersect_bounds(bounds, ranked, keys.equal.length)
            for bounds, ranked in zip(keys.bounds, self.ranked, strict=True)
        ]
        order = None
        if self.maxima is not None and isinstance(self.groups, AllRowsIndex):
            order = _find_ascending_order(intervals[0])
            intervals = (
                intervals if order is None else [column_intervals.picked(order) for column_intervals in intervals]
            )
        matched, pairs = self._narrow(first, counts, intervals)
        if self.maxima is None:
            return Matches(freeze(first), freeze(counts), self.rows, matched, pairs)
        least, most = intervals[1].low, intervals[1].high
        if self.inverted:
            least, most = freeze(~most), freeze(~least)
        bounded = intervals[1].lower if self.inverted else intervals[1].upper
        return Candidates(freeze(first), freeze(counts), self.rows, least, most, bounded, self.maxima, order)

    def _ranges(self, equal: NormalisedKeys) -> tuple[RowIds, RowIds]:
        """Return the group of each probe row as a range of entries (first, counts), in new arrays."""
        matches = self.groups.lookup(equal)
        counts = matches.first >= 0 if matches.counts is None else matches.counts
        dtype = matches.first.dtype if self.rows is None else self.rows.dtype
        return matches.first.astype(dtype), counts.astype(dtype)

    def _narrow(self, first: RowIds, counts: RowIds, intervals: Sequence[Intervals]) -> tuple[int, int]:
        """Narrow each range to the entries whose word is in the interval of the first compared column.

        Return (rows with a range, entries of all ranges).
        """
        interval = intervals[0]
        if interval.lower:
            _narrow_to_limits(self.words, interval.low, first, counts, True)
        if interval.upper:
            _narrow_to_limits(self.words, interval.high, first, counts, False)
        valid = [column_intervals.valid for column_intervals in intervals if column_intervals.valid is not None]
        mask = NO_MASK if not valid else freeze(np.bitwise_and.reduce(valid))
        return _settle(mask, first, counts)


def build_range_index(
    columns: Sequence[pa.Array],
    equal: NormalisedKeys,
    build_groups: Callable[[NormalisedKeys], JoinIndex],
    inverted: bool = False,
    wide: bool = False,
    threads: int = 1,
) -> RangeIndex:
    """Index the one or two compared `columns` of a build side under its `equal` keys.

    `build_groups` indexes the keys of rows without nulls in `columns`; it is not called if `equal` has no columns.
    `inverted`: the second column is bounded from above only. `wide` forces eight-byte row ids, for tests.
    """
    bounds = [encode_bound_column(column) for column in columns]
    valid = [mask for mask in map(unpack_validity, columns) if mask is not None]
    dtype = row_id_dtype(equal.length, wide)
    present: RowIds | None = None
    if valid:
        present = freeze(np.flatnonzero(np.bitwise_and.reduce(valid)).astype(dtype))
        equal = _take_keys(equal, present)
    grouped = equal.words is not None or equal.rows is not None
    groups: JoinIndex = build_groups(equal) if grouped else AllRowsIndex(equal.length)
    del equal  # no longer needed, and large
    words, rows = _sort_in_groups(groups, bounds[0].words, present, dtype, threads)
    second = None
    if len(bounds) > 1:
        seconds = bounds[1].words if rows is None else freeze(_pick_words(bounds[1].words, rows, threads))
        second = BlockMaxima.over(freeze(~seconds) if inverted else seconds)
    entry_rows = None if rows is not None and rows.size == bounds[0].words.size and _is_identity(rows) else rows
    if groups.rows is not None:
        # In a dense or hash index, `rows` of None would mean that no key repeats. An ordered index of unique keys would
        # translate its entries by `rows`.
        groups = replace(groups, rows=None if isinstance(groups, OrderedIndex) else rows)  # type: ignore[type-var]
    return RangeIndex(groups, words, second, inverted, tuple(bound.ranked for bound in bounds), entry_rows)


def _sort_in_groups(
    groups: JoinIndex, words: Int64Array, present: RowIds | None, dtype: np.dtype[Any], threads: int
) -> tuple[Int64Array, RowIds | None]:
    """Return the words of all entries, sorted within each group, and their build rows (None if entry i is build row i).

    Ties are in the order of rows. `present`: the build rows that the groups index; None if they index all rows.
    """
    rows = groups.rows
    if present is not None:
        rows = present if rows is None else freeze(present[rows])
    entry_words = None if rows is None else _pick_words(words, rows, threads)
    starts = groups.starts
    if starts is None:
        return (words if entry_words is None else freeze(entry_words)), rows
    if rows is None:
        rows = freeze(np.arange(words.size, dtype=dtype))
    if isinstance(groups, AllRowsIndex):
        return sort_words(words if entry_words is None else freeze(entry_words), rows, threads)
    own_words, own_rows = words.copy() if entry_words is None else entry_words, allocate_array(rows.size, dtype)
    own_rows[:] = rows
    sort_segments(own_words, own_rows, starts, threads)
    return freeze(own_words), freeze(own_rows)


def _pick_words(words: Int64Array, rows: RowIds, threads: int) -> Int64Array:
    """Return words[rows] as a new array."""
    out = allocate_array(rows.size, words.dtype)
    run_in_parts(lambda start, stop: _pick(words, rows[start:stop], out[start:stop]), rows.size, threads)
    return out


def _find_ascending_order(interval: Intervals) -> Int64Array | None:
    """Return an order in which the ends of ranges ascend; None if they ascend already.

    Neighbouring probe rows then read the same entries, which are in the cache: with 2 M overlapping intervals on both
    sides a lookup takes half the time.
    """
    ends = interval.high if interval.upper else interval.low
    if is_sorted(ends):
        return None
    _, order = sort_words(ends, freeze(np.arange(ends.size, dtype=np.int64)))
    return order


@kernel
def _pick(words: Int64Array, rows: RowIds, out: Int64Array) -> None:
    for i in range(rows.size):
        out[i] = words[np.uint64(rows[i])]


@kernel
def _is_identity(rows: RowIds) -> bool:
    for i in range(rows.size):
        if rows[i] != i:
            return False
    return True


def _take_keys(keys: NormalisedKeys, rows: RowIds) -> NormalisedKeys:
    words = None if keys.words is None else freeze(keys.words[rows])
    texts = None if keys.rows is None else view_var_bytes(as_binary(keys.rows).take(pa.array(rows)))
    return NormalisedKeys(rows.size, words, texts, None if keys.valid is None else freeze(keys.valid[rows]))


def _select_prefixed(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


@kernel
def _narrow_to_limits(words: Int64Array, limits: Int64Array, first: RowIds, counts: RowIds, lower: bool) -> None:
    """Narrow each range of ascending words to the words from its limit on (`lower`), or up to its limit.

    Bisection without branches, `_LANES` rows in step, so that their cache misses overlap.
    """
    low = np.empty(_LANES, dtype=np.int64)
    size = np.empty(_LANES, dtype=np.int64)
    equal = np.int64(not lower)
    for base in range(0, limits.size, _LANES):
        width = min(_LANES, limits.size - base)
        longest = np.int64(0)
        for lane in range(width):
            size[lane] = counts[base + lane]
            low[lane] = first[base + lane] if size[lane] > 0 else 0
            longest = max(longest, size[lane])
        while longest > 1:
            longest -= longest >> 1
            for lane in range(width):
                half = size[lane] >> 1
                size[lane] -= half
                word = words[low[lane] + max(half - 1, 0)]
                limit = limits[base + lane]
                low[lane] += half * (np.int64(word < limit) | (equal & np.int64(word == limit)))
                prefetch(words, low[lane] + (size[lane] >> 1) - 1)
        for lane in range(width):
            i = base + lane
            if counts[i] == 0:
                continue
            at = low[lane]
            at += np.int64(words[at] < limits[i]) | (equal & np.int64(words[at] == limits[i]))
            if lower:
                counts[i] -= at - first[i]
                first[i] = at
            else:
                counts[i] = at - first[i]


@kernel
def _settle(valid: UInt8Array, first: RowIds, counts: RowIds) -> tuple[int, int]:
    """Mark rows that have an empty range or are not valid as unmatched; return (rows with a range, sum of `counts`)."""
    all_valid = valid.size == 0
    matched = 0
    entries = np.int64(0)
    for i in range(first.size):
        if counts[i] <= 0 or not (all_valid or valid[i] != 0):
            first[i] = -1
            counts[i] = 0
        else:
            matched += 1
            entries += counts[i]
    return matched, entries


@kernel
def _find_any(
    first: RowIds,
    counts: RowIds,
    least: Int64Array,
    most: Int64Array,
    words: Int64Array,
    levels: Int64Array,
    prefix: Int64Array,
    found: RowIds,
) -> int:
    """found[i] = the last matching entry of range i, or -1; return how many ranges have a match."""
    matched = 0
    for i in range(first.size):
        start = np.int64(first[i])
        at = np.int64(-1)
        if start >= 0:
            at = find_last_at_least(words, levels, prefix, start, start + counts[i], least[i])
            while at >= 0 and words[at] > most[i]:
                at = find_last_at_least(words, levels, prefix, start, at, least[i])
        found[i] = at
        matched += at >= 0
    return matched


@kernel
def _stab(
    first: RowIds,
    counts: RowIds,
    rows: RowIds,
    entry_is_row: bool,
    least: Int64Array,
    most: Int64Array,
    bounded: bool,
    words: Int64Array,
    levels: Int64Array,
    prefix: Int64Array,
    outer: bool,
    row: int,
    offset: int,
    probe_rows: RowIds,
    build_rows: RowIds,
) -> tuple[int, int, int]:
    """Fill both outputs with the next pairs from (row, offset) on; return the number of pairs, next row, next offset.

    The entries of a range are visited from its end. If `offset` is above 0, this number of entries has been visited
    before, and at least one of them matched. While the output has space for a block, the rest of a block with a match
    is tried without branches: if intervals overlap, a match is rarely alone.
    """
    produced = 0
    wanted = probe_rows.size
    while row < first.size:
        start = np.int64(first[row])
        stop = start + counts[row] - offset
        found = offset > 0
        if start >= 0:
            while True:
                at = find_last_at_least(words, levels, prefix, start, stop, least[row])
                while bounded and at >= 0 and words[at] > most[row]:
                    at = find_last_at_least(words, levels, prefix, start, at, least[row])
                if at < 0:
                    break
                if wanted - produced >= BLOCK:
                    stop = max(start, at & ~np.int64(BLOCK - 1))
                    for entry in range(at, stop - 1, -1):
                        probe_rows[produced] = row
                        build_rows[produced] = entry if entry_is_row else np.int64(rows[entry])
                        word = words[entry]
                        produced += np.int64(word >= least[row]) & np.int64(word <= most[row])
                    found = True
                    continue
                if produced == wanted:
                    return produced, row, start + counts[row] - stop if found else 0
                probe_rows[produced] = row
                build_rows[produced] = at if entry_is_row else np.int64(rows[at])
                produced += 1
                stop = at
                found = True
        if outer and not found:
            if produced == wanted:
                return produced, row, 0
            probe_rows[produced] = row
            build_rows[produced] = -1
            produced += 1
        row += 1
        offset = 0
    return produced, row, 0
