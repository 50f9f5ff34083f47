"""Common parts of accumulators: the rows of a morsel by group, which groups have had a value, and counts of values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparkext.kernels.columns.buffers import Int32Array, Int64Array, UInt8Array
from sparkext.kernels.columns.growing import HeldArrays, grow_array
from sparkext.kernels.runtime.jit import freeze, kernel


class GroupRows(NamedTuple):
    """The rows of a morsel.

    `numbers` is the group id of each row, int32[rows], or None if all rows are in group 0. There are `groups` groups so
    far. `mask` is uint8[rows], zero if the value is null; it is empty if no value is null.
    """

    numbers: Int32Array | None
    groups: int
    rows: int
    mask: UInt8Array

    @property
    def all_numbers(self) -> Int32Array:
        """The group id of each row, for kernels without a special path for a single group."""
        return freeze(np.zeros(self.rows, dtype=np.int32)) if self.numbers is None else self.numbers

    @property
    def present(self) -> int:
        """The number of rows that are not null."""
        return int(np.count_nonzero(self.mask)) if self.mask.size else self.rows


class SeenGroups(HeldArrays):
    """Which groups have had a value.

    All groups below an id, `_complete`, have had a value. Group ids are assigned in the order of first rows, and most
    groups have a value in their first row, so this id usually equals the number of groups. Only if it does not, a flag
    is set for each row.
    """

    def __init__(self) -> None:
        self._flags = np.zeros(0, dtype=np.uint8)
        self._complete = 0  # all groups below this id have had a value

    def add(self, rows: GroupRows) -> None:
        """Record the groups of the rows that are not null."""
        if self._complete >= rows.groups:
            return
        if rows.numbers is None:
            self._complete = max(self._complete, int(rows.present > 0))
            return
        self._complete = _follow(rows.numbers, rows.mask, self._complete, rows.groups)
        if self._complete < rows.groups:
            self._flags = grow_array(self._flags, rows.groups)
            _mark(rows.numbers, rows.mask, self._flags)
            self._complete = _find_unflagged(self._flags, self._complete, rows.groups)

    def flags(self, start: int, stop: int) -> UInt8Array:
        """Return uint8[stop - start]: 1 for each of these groups that has had a value."""
        flags = np.zeros(stop - start, dtype=np.uint8)
        stored = self._flags[start:stop]
        flags[: stored.size] = stored
        flags[: max(0, self._complete - start)] = 1
        return flags


class ValueCounts(HeldArrays):
    """The number of values of each group, int64."""

    def __init__(self) -> None:
        self._counts = np.zeros(0, dtype=np.int64)

    def add(self, rows: GroupRows) -> None:
        """Count the rows that are not null."""
        self._counts = grow_array(self._counts, rows.groups)
        if rows.numbers is None:
            self._counts[0] += rows.present
        else:
            _count(rows.numbers, rows.mask, self._counts)

    def counts(self, start: int, stop: int) -> Int64Array:
        """Return int64: the counts of the groups start to before stop."""
        self._counts = grow_array(self._counts, stop)
        return self._counts[start:stop]


@kernel
def _follow(numbers: Int32Array, mask: UInt8Array, complete: int, groups: int) -> int:
    """Scan the rows once; return `complete`, increased by one at each row of group `complete` that has a value."""
    none_null = mask.size == 0
    for i in range(numbers.size):
        if numbers[i] == complete and (none_null or mask[i] != 0):
            complete += 1
            if complete == groups:
                break
    return complete


@kernel
def _mark(numbers: Int32Array, mask: UInt8Array, flags: UInt8Array) -> None:
    if mask.size == 0:
        for i in range(numbers.size):
            flags[np.uint32(numbers[i])] = 1
    else:
        for i in range(numbers.size):
            flags[np.uint32(numbers[i])] |= mask[i]


@kernel
def _find_unflagged(flags: UInt8Array, start: int, stop: int) -> int:
    while start < stop and flags[start] != 0:
        start += 1
    return start


@kernel
def _count(numbers: Int32Array, mask: UInt8Array, counts: Int64Array) -> None:
    if mask.size == 0:
        for i in range(numbers.size):
            counts[np.uint32(numbers[i])] += 1
    else:
        for i in range(numbers.size):
            counts[np.uint32(numbers[i])] += mask[i]
