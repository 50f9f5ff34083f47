"""The three kinds of tables that `GroupTable` uses: they map the words of rows to group ids.

    dense     one array, addressed by word - low: group + 1, or 0
    hashed    open addressing, one word a key:   (word, group + 1), (word, group + 1), ...
    wide      open addressing, b words a key:    (word 1, ..., word b, ..., group + 1), ...

A key is stored next to its group, so that a look-up reads one cache line. Hashed tables use linear probing from the top
bits of the hash. A free slot has group 0 (group ids are stored plus 1), so that tables start as zeroed pages, which
cost nothing until they are touched.

All of them assign ids to rows from `start` on, and stop at the first row whose group does not fit the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from sparkext.kernels.columns.buffers import Int32Array, Int64Array
from sparkext.kernels.keys.hashing import FULL_MASK
from sparkext.kernels.runtime.intrinsics import prefetch
from sparkext.kernels.runtime.jit import freeze, inlined, kernel

_FIRST_SLOTS = 1 << 10
_AHEAD = 32
"""A slot is prefetched this number of rows before its look-up; a power of two."""
_CACHED_BYTES = 1 << 18
"""Tables up to this size fit the nearer caches: nothing is prefetched."""
_SPARSE_SLOTS, _LOOSE_SLOTS = 1 << 14, 1 << 17
"""Up to these numbers of slots, at most an eighth and at most a quarter of them are occupied; above, at most half."""

_MIX_1 = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT_32 = np.uint64(32)
_ONE = np.uint64(1)


class Slots(Protocol):
    """A table from words to group ids."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def number(
        self,
        words: Sequence[Int64Array],
        start: int,
        count: int,
        numbers: Int32Array,
        fresh: Int32Array,
        first_fresh: int,
    ) -> tuple[int, int]:
        """Write numbers[start:], the group ids of the rows. `words` are int64[n] for each word of a key.

        `count` groups are in the table. New groups get the next ids. `first_fresh` is the id of the group whose first
        row is fresh[0], so fresh[id - first_fresh] is the first row of each new group. Return (first row without an id,
        because its group does not fit the table; number of groups).
        """


class DenseSlots:
    """A dense table, for words in [low, low + size)."""

    def __init__(self, low: int, size: int) -> None:
        self._low = np.int64(low)
        self._groups = np.zeros(size, dtype=np.int32)

    @classmethod
    def of(cls, slots: HashSlots, low: int, size: int) -> DenseSlots:
        """Return a dense table with the groups of `slots`, whose words are all in [low, low + size)."""
        dense = cls(low, size)
        words, groups = slots.entries()
        dense._groups[words - low] = groups
        return dense

    @property
    def nbytes(self) -> int:
        """See `Slots`."""
        return self._groups.nbytes

    def number(
        self,
        words: Sequence[Int64Array],
        start: int,
        count: int,
        numbers: Int32Array,
        fresh: Int32Array,
        first_fresh: int,
    ) -> tuple[int, int]:
        """See `Slots`. Words outside of the range do not fit."""
        return _number_dense(words[0], start, self._low, self._groups, count, numbers, fresh, first_fresh)


class HashSlots:
    """A hash table for any words, `width` per key, with an initial capacity of more than `groups` groups."""

    def __init__(self, groups: int, width: int = 1, hash_mask: int = FULL_MASK) -> None:
        self._width = width
        self._stride = width + 1 if width == 1 or width > 3 else 4  # a cache line holds two entries of four words
        self._mask = np.uint64(hash_mask)
        slots = _FIRST_SLOTS
        while most_groups(slots) <= groups:
            slots *= 2
        self._resize(slots)

    def _resize(self, slots: int) -> None:
        self._slots = slots
        self._shift = np.uint64(65 - slots.bit_length())
        self._table = aligned_zeros(self._stride * slots)

    @property
    def nbytes(self) -> int:
        """See `Slots`."""
        return self._table.nbytes

    def entries(self) -> tuple[Int64Array, Int64Array]:
        """Return the words of one-word keys, and the group + 1 of each."""
        slots = np.flatnonzero(self._table[1::2])
        return self._table[2 * slots], self._table[2 * slots + 1]

    def grow(self) -> None:
        """Double the slots."""
        entries = freeze(self._table)
        self._resize(2 * self._slots)
        if self._width == 1:
            _move_words(entries, self._table, self._shift, self._mask)
        else:
            _move_keys(entries, self._width, self._stride, self._table, self._shift, self._mask)

    def number(
        self,
        words: Sequence[Int64Array],
        start: int,
        count: int,
        numbers: Int32Array,
        fresh: Int32Array,
        first_fresh: int,
    ) -> tuple[int, int]:
        """See `Slots`. A new group does not fit if the slots have to grow."""
        exceeds_cache = self._table.nbytes > _CACHED_BYTES
        limit = most_groups(self._slots)
        if self._width == 1:
            return _number_words(
                *(words[0], start, self._table, self._shift, self._mask, exceeds_cache),
                *(count, limit, numbers, fresh, first_fresh),
            )
        if self._width == 2:
            return _number_pairs(
                *(words[0], words[1], start, self._table, self._shift, self._mask, exceeds_cache),
                *(count, limit, numbers, fresh, first_fresh),
            )
        rows = freeze(np.stack(words, axis=1).reshape(-1))
        return _number_keys(
            *(rows, start, self._width, self._stride, self._table, self._shift, self._mask, exceeds_cache),
            *(count, limit, numbers, fresh, first_fresh),
        )


def most_groups(slots: int) -> int:
    """Return the most groups for this number of slots.

    A probe that does not end at the first slot is a mispredicted branch, some 20 cycles. A plain loop over 1,000 groups
    in random order took 9.3 ns a row with half of the slots occupied, 5.4 ns with a quarter, 4.3 ns with an eighth.
    Large tables are limited by the memory instead: with 1 M groups and prefetching, 14.1 ns for half and 15.6 ns for a
    quarter.
    """
    return slots // (8 if slots <= _SPARSE_SLOTS else 4 if slots <= _LOOSE_SLOTS else 2)


def aligned_zeros(size: int) -> Int64Array:
    """Return int64[size] of zeros that starts at a cache line."""
    words = np.zeros(size + 8, dtype=np.int64)
    skipped = -(words.ctypes.data // 8) % 8
    return words[skipped : skipped + size]


@kernel
def _number_dense(
    words: Int64Array,
    start: int,
    low: np.int64,
    groups: Int32Array,
    count: int,
    numbers: Int32Array,
    fresh: Int32Array,
    known: int,
) -> tuple[int, int]:
    """See `Slots.number`."""
    size = np.uint64(groups.size)
    for i in range(start, words.size):
        slot = np.uint64(words[i] - low)
        if slot >= size:
            return i, count
        group = groups[slot]
        if group == 0:
            fresh[count - known] = i
            count += 1
            group = np.int32(count)
            groups[slot] = group
        numbers[i] = group - 1
    return words.size, count


@inlined
def _home(word: np.int64, shift: np.uint64, mask: np.uint64) -> np.uint64:
    """Return the home slot of a word: the top bits of its hash."""
    h = np.uint64(word) * _MIX_1
    h = (h ^ (h >> _SHIFT_32)) * _MIX_2
    return (h & mask) >> shift


@inlined
def _find_word(table: Int64Array, word: np.int64, slot: np.uint64, last_slot: np.uint64) -> np.uint64:
    """Return the position in `table` of the entry of `word`, or of the free entry for it."""
    at = slot << _ONE
    while table[at] != word and table[at | _ONE] != 0:
        slot = (slot + _ONE) & last_slot
        at = slot << _ONE
    return at


@kernel
def _number_words(
    words: Int64Array,
    start: int,
    table: Int64Array,
    shift: np.uint64,
    mask: np.uint64,
    far: bool,
    count: int,
    limit: int,
    numbers: Int32Array,
    fresh: Int32Array,
    known: int,
) -> tuple[int, int]:
    """See `Slots.number`; `far`: prefetch slots."""
    n = words.size
    last_slot = np.uint64(table.size // 2 - 1)
    homes = np.empty(_AHEAD, dtype=np.uint64)
    if far:
        for i in range(start, min(start + _AHEAD, n)):
            home = _home(words[i], shift, mask)
            homes[i % _AHEAD] = home
            prefetch(table, np.int64(home << _ONE))
    for i in range(start, n):
        if far:
            home = homes[i % _AHEAD]
            if i + _AHEAD < n:
                later = _home(words[i + _AHEAD], shift, mask)
                homes[i % _AHEAD] = later
                prefetch(table, np.int64(later << _ONE))
        else:
            home = _home(words[i], shift, mask)
        at = _find_word(table, words[i], home, last_slot)
        group = table[at | _ONE]
        if group == 0:
            if count >= limit:
                return i, count
            fresh[count - known] = i
            count += 1
            group = np.int64(count)
            table[at] = words[i]
            table[at | _ONE] = group
        numbers[i] = group - 1
    return n, count


@inlined
def _home_of_pair(first: np.int64, second: np.int64, shift: np.uint64, mask: np.uint64) -> np.uint64:
    """Return the home slot of a key of two words."""
    h = np.uint64(first) * _MIX_1
    h = ((h ^ (h >> _SHIFT_32)) + np.uint64(second)) * _MIX_2
    return (h & mask) >> shift


@kernel
def _number_pairs(
    firsts: Int64Array,
    seconds: Int64Array,
    start: int,
    table: Int64Array,
    shift: np.uint64,
    mask: np.uint64,
    far: bool,
    count: int,
    limit: int,
    numbers: Int32Array,
    fresh: Int32Array,
    known: int,
) -> tuple[int, int]:
    """See `Slots.number`, for keys of two words; `far`: prefetch slots.

    With 1,000 groups it takes 4.6 ns a row, against 10 ns of a loop over any number of words per key.
    """
    n = firsts.size
    last_slot = np.uint64(table.size // 4 - 1)
    two, three = np.uint64(2), np.uint64(3)
    homes = np.empty(_AHEAD, dtype=np.uint64)
    if far:
        for i in range(start, min(start + _AHEAD, n)):
            home = _home_of_pair(firsts[i], seconds[i], shift, mask)
            homes[i % _AHEAD] = home
            prefetch(table, np.int64(home << two))
    for i in range(start, n):
        first, second = firsts[i], seconds[i]
        if far:
            slot = homes[i % _AHEAD]
            if i + _AHEAD < n:
                later = _home_of_pair(firsts[i + _AHEAD], seconds[i + _AHEAD], shift, mask)
                homes[i % _AHEAD] = later
                prefetch(table, np.int64(later << two))
        else:
            slot = _home_of_pair(first, second, shift, mask)
        at = slot << two
        while (table[at] != first or table[at | _ONE] != second) and table[at | three] != 0:
            slot = (slot + _ONE) & last_slot
            at = slot << two
        group = table[at | three]
        if group == 0:
            if count >= limit:
                return i, count
            fresh[count - known] = i
            count += 1
            group = np.int64(count)
            table[at] = first
            table[at | _ONE] = second
            table[at | three] = group
        numbers[i] = group - 1
    return n, count


@inlined
def _home_of_key(words: Int64Array, at: np.uint64, width: np.uint64, shift: np.uint64, mask: np.uint64) -> np.uint64:
    """Return the home slot of the key words[at:at + width]; for two words, the same as `_home_of_pair`."""
    h = np.uint64(words[at]) * _MIX_1
    for j in range(at + _ONE, at + width):
        h = ((h ^ (h >> _SHIFT_32)) + np.uint64(words[j])) * _MIX_2
    return (h & mask) >> shift


@kernel
def _number_keys(
    words: Int64Array,
    start: int,
    key_width: int,
    stride: int,
    table: Int64Array,
    shift: np.uint64,
    mask: np.uint64,
    far: bool,
    count: int,
    limit: int,
    numbers: Int32Array,
    fresh: Int32Array,
    known: int,
) -> tuple[int, int]:
    """See `Slots.number`; words[i * width:][:width] is the key of row i. `far`: prefetch slots."""
    n = words.size // key_width
    width, size, to_group = np.uint64(key_width), np.uint64(stride), np.uint64(stride - 1)
    last_slot = np.uint64(table.size // stride - 1)
    homes = np.empty(_AHEAD, dtype=np.uint64)
    if far:
        for i in range(start, min(start + _AHEAD, n)):
            home = _home_of_key(words, np.uint64(i) * width, width, shift, mask)
            homes[i % _AHEAD] = home
            prefetch(table, np.int64(home * size))
    for i in range(start, n):
        key = np.uint64(i) * width
        if far:
            slot = homes[i % _AHEAD]
            if i + _AHEAD < n:
                later = _home_of_key(words, np.uint64(i + _AHEAD) * width, width, shift, mask)
                homes[i % _AHEAD] = later
                prefetch(table, np.int64(later * size))
        else:
            slot = _home_of_key(words, key, width, shift, mask)
        at = slot * size
        group = table[at + to_group]
        while group != 0:
            j = np.uint64(0)
            while j < width and table[at + j] == words[key + j]:
                j += _ONE
            if j == width:
                break
            slot = (slot + _ONE) & last_slot
            at = slot * size
            group = table[at + to_group]
        if group == 0:
            if count >= limit:
                return i, count
            fresh[count - known] = i
            count += 1
            group = np.int64(count)
            for j in range(width):
                table[at + j] = words[key + j]
            table[at + to_group] = group
        numbers[i] = group - 1
    return n, count


@kernel
def _move_words(source: Int64Array, table: Int64Array, shift: np.uint64, mask: np.uint64) -> None:
    """Enter all entries of `source` into the larger, empty `table`."""
    last_slot = np.uint64(table.size // 2 - 1)
    for entry in range(0, source.size, 2):
        if source[entry + 1] != 0:
            at = _find_word(table, source[entry], _home(source[entry], shift, mask), last_slot)
            table[at] = source[entry]
            table[at | _ONE] = source[entry + 1]


@kernel
def _move_keys(
    source: Int64Array, width: int, stride: int, table: Int64Array, shift: np.uint64, mask: np.uint64
) -> None:
    """Like `_move_words`, for keys of several words."""
    size, to_group = np.uint64(stride), np.uint64(stride - 1)
    last_slot = np.uint64(table.size // stride - 1)
    for entry in range(0, source.size, stride):
        if source[entry + stride - 1] != 0:
            slot = _home_of_key(source, np.uint64(entry), np.uint64(width), shift, mask)
            while table[slot * size + to_group] != 0:
                slot = (slot + _ONE) & last_slot
            for j in range(stride):
                table[slot * size + np.uint64(j)] = source[entry + j]
