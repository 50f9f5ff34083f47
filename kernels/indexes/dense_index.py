"""Direct addressing for dense keys: the slot is `key - min`, no hash, no comparison.

    unique keys                          repeated keys

    slots[key - min] = build row         starts[key - min] .. starts[key - min + 1] = range in rows
    ┌───┬───┬────┬───┐                   ┌───┬───┬───┬───┐        ┌───┬───┬───┐
    │ 4 │ 0 │ -1 │ 2 │                   │ 0 │ 2 │ 2 │ 3 │ ─────▶ │ 1 │ 7 │ 3 │
    └───┴───┴────┴───┘                   └───┴───┴───┴───┘        └───┴───┴───┘

It pays if the key range is a small multiple of the row count (surrogate keys, dates): a slot costs four bytes, and keys
in ascending order are looked up in memory order, whereas a hash would scatter them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array, allocate_array
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.indexes.array_index import ArrayIndex
from sparkext.kernels.indexes.matches import Matches
from sparkext.kernels.keys.normalised import NormalisedKeys, word_range
from sparkext.kernels.runtime.intrinsics import prefetch
from sparkext.kernels.runtime.jit import freeze, kernel

_GROUP = 64


@dataclass(frozen=True)
class DenseIndex(ArrayIndex):
    """See the module's drawing. `rows` is None in the layout of unique keys.

    `slots` has build rows (-1 for no row) or, for repeated keys, range starts; its dtype is that of the build side's
    row ids.
    """

    kind: ClassVar[str] = "dense"

    slots: RowIds
    rows: RowIds | None
    minimum: int

    @property
    def starts(self) -> RowIds | None:
        """The position of each slot's first row in `rows`; None if every key has one row."""
        return None if self.rows is None else self.slots

    @property
    def distinct(self) -> int:
        """The number of distinct keys."""
        return int(np.count_nonzero(self.slots >= 0 if self.rows is None else np.diff(self.slots)))

    def lookup(self, keys: NormalisedKeys) -> Matches:
        """Return the match range of every probe key; a key that is not valid by `keys.valid` matches nothing."""
        assert keys.words is not None, "only keys that fit a word are indexed densely"
        first = np.empty(keys.length, dtype=self.slots.dtype)
        minimum = np.int64(self.minimum)
        if self.rows is None:
            matched = _lookup_unique(keys.words, keys.mask, self.slots, minimum, first)
            return Matches(freeze(first), None, None, matched, matched)
        counts = np.empty_like(first)
        matched, pairs = _lookup_ranges(keys.words, keys.mask, self.slots, minimum, first, counts)
        return Matches(freeze(first), freeze(counts), self.rows, matched, pairs)


def key_range(keys: NormalisedKeys) -> tuple[int, int, int] | None:
    """Return (smallest, largest, count) of the valid words, or None if there is no valid word."""
    assert keys.words is not None
    count, low, high = word_range(keys.words, keys.mask)
    return (int(low), int(high), int(count)) if count else None


def build_dense_index(keys: NormalisedKeys, minimum: int, maximum: int, wide: bool = False) -> DenseIndex:
    """Index valid words, all of which are in [minimum, maximum]. `wide` forces eight-byte row ids, for tests."""
    assert keys.words is not None
    dtype = row_id_dtype(keys.length, wide)
    span = maximum - minimum + 1
    slots = np.full(span, -1, dtype=dtype)
    if _place_unique(keys.words, keys.mask, np.int64(minimum), slots):
        return DenseIndex(freeze(slots), None, minimum)
    starts = np.zeros(span + 1, dtype=dtype)
    count = _count_slots(keys.words, keys.mask, np.int64(minimum), starts)
    rows = allocate_array(count, dtype)
    _place_ranges(keys.words, keys.mask, np.int64(minimum), starts, rows)
    return DenseIndex(freeze(starts), freeze(rows), minimum)


@kernel
def _place_unique(words: Int64Array, valid: UInt8Array, minimum: np.int64, slots: RowIds) -> bool:
    """Write each row into its slot; stop and return False at the first repeated key."""
    all_valid = valid.size == 0
    for i in range(words.size):
        if all_valid or valid[i] != 0:
            slot = words[i] - minimum
            if slots[slot] >= 0:
                return False
            slots[slot] = i
    return True


@kernel
def _count_slots(words: Int64Array, valid: UInt8Array, minimum: np.int64, starts: RowIds) -> int:
    """starts[slot + 1] = start of the slot's range; return the number of valid keys."""
    all_valid = valid.size == 0
    for i in range(words.size):
        if all_valid or valid[i] != 0:
            starts[words[i] - minimum + 1] += 1
    total = 0
    for slot in range(1, starts.size):
        count = np.int64(starts[slot])
        starts[slot] = total
        total += count
    return total


@kernel
def _place_ranges(words: Int64Array, valid: UInt8Array, minimum: np.int64, starts: RowIds, rows: RowIds) -> None:
    """Place each row into its key's range, in row order; starts[slot + 1] becomes the end of the slot's range."""
    all_valid = valid.size == 0
    for i in range(words.size):
        if all_valid or valid[i] != 0:
            slot = words[i] - minimum + 1
            at = np.int64(starts[slot])
            rows[at] = i
            starts[slot] = at + 1


@kernel
def _lookup_unique(words: Int64Array, valid: UInt8Array, slots: RowIds, minimum: np.int64, first: RowIds) -> int:
    """first[i] = build row of words[i], or -1; return the number of matches."""
    all_valid = valid.size == 0
    lowest, span = np.uint64(minimum), np.uint64(slots.size)
    matched = 0
    for i in range(words.size):
        slot = np.uint64(words[i]) - lowest  # a word below the minimum wraps, and is out of the span as well
        found = np.int64(-1)
        if slot < span and (all_valid or valid[i] != 0):
            found = np.int64(slots[np.int64(slot)])
            matched += found >= 0
        first[i] = found
    return matched


@kernel
def _lookup_ranges(
    words: Int64Array,
    valid: UInt8Array,
    starts: RowIds,
    minimum: np.int64,
    first: RowIds,
    counts: RowIds,
) -> tuple[int, int]:
    """Write the match range of every word; return (probe rows matched, pairs)."""
    all_valid = valid.size == 0
    lowest, span = np.uint64(minimum), np.uint64(starts.size - 1)
    matched = 0
    pairs = 0
    n = words.size
    for base in range(0, n, _GROUP):
        stop = min(base + _GROUP, n)
        for i in range(base, stop):
            slot = np.uint64(words[i]) - lowest
            if slot < span:
                prefetch(starts, np.int64(slot))
        for i in range(base, stop):
            slot = np.uint64(words[i]) - lowest
            start = np.int64(-1)
            count = np.int64(0)
            if slot < span and (all_valid or valid[i] != 0):
                start = np.int64(starts[np.int64(slot)])
                count = np.int64(starts[np.int64(slot) + 1]) - start
                if count == 0:
                    start = np.int64(-1)
                else:
                    matched += 1
                    pairs += count
            first[i] = start
            counts[i] = count
    return matched, pairs
