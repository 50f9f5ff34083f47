"""Sums of machine numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import DoubleArray, Int32Array, Int64Array, UInt8Array, view_values
from sparkext.kernels.columns.growing import HeldArrays, fixed_array, grow_array
from sparkext.kernels.groups.group_rows import GroupRows
from sparkext.kernels.keys.normalised import column_words
from sparkext.kernels.runtime.jit import kernel


class AccumulatorOverflowError(ArithmeticError):
    """A checked sum has overflown its type. The accumulator's state is invalid afterwards."""


class IntegerSums(HeldArrays):
    """Sums of integers. A sum that overflows int64 wraps around.

    If sums are `checked`, `add` raises `AccumulatorOverflowError` instead. Values are added in the order of the rows,
    so later rows of opposite sign do not prevent the error.
    """

    def __init__(self, checked: bool) -> None:
        self._checked = checked
        self._sums = np.zeros(0, dtype=np.int64)

    def add(self, rows: GroupRows, values: pa.Array) -> None:
        """See `GroupSums`."""
        words = column_words(values)
        self._sums = grow_array(self._sums, rows.groups)
        if rows.numbers is None:
            overflow = _add_all_words(words, rows.mask, self._checked, self._sums)
        else:
            overflow = _add_words(rows.numbers, words, rows.mask, self._checked, self._sums)
        if overflow and self._checked:
            raise AccumulatorOverflowError("a sum of integers does not fit int64")

    def array(self, start: int, stop: int) -> pa.Array:
        """See `GroupSums`."""
        self._sums = grow_array(self._sums, stop)
        return fixed_array(self._sums[start:stop], pa.int64())


class DoubleSums(HeldArrays):
    """Sums of numbers of any type as doubles, added in any order, as in Spark."""

    def __init__(self) -> None:
        self._sums = np.zeros(0, dtype=np.float64)

    def add(self, rows: GroupRows, values: pa.Array) -> None:
        """See `GroupSums`. Each integer is converted to a double before it is added."""
        doubles = view_values(values.cast(pa.float64(), safe=False), np.float64)
        self._sums = grow_array(self._sums, rows.groups)
        if rows.numbers is None:
            self._sums[0] += _sum_doubles(doubles, rows.mask)
        else:
            _add_doubles(rows.numbers, doubles, rows.mask, self._sums)

    def array(self, start: int, stop: int) -> pa.Array:
        """See `GroupSums`."""
        self._sums = grow_array(self._sums, stop)
        return fixed_array(self._sums[start:stop], pa.float64())


@kernel
def _add_words(numbers: Int32Array, words: Int64Array, mask: UInt8Array, checked: bool, sums: Int64Array) -> bool:
    """sums[numbers[i]] += words[i], wrapping around; return whether a checked sum wrapped. Nulls add nothing."""
    wrapped = np.int64(0)
    if checked:
        for i in range(numbers.size):
            group = np.uint32(numbers[i])
            before = sums[group]
            word = words[i] if mask.size == 0 or mask[i] != 0 else np.int64(0)
            after = before + word
            wrapped |= (before ^ after) & (word ^ after)
            sums[group] = after
    elif mask.size == 0:
        for i in range(numbers.size):
            sums[np.uint32(numbers[i])] += words[i]
    else:
        for i in range(numbers.size):
            sums[np.uint32(numbers[i])] += words[i] if mask[i] != 0 else np.int64(0)
    return wrapped < 0


@kernel
def _add_all_words(words: Int64Array, mask: UInt8Array, checked: bool, sums: Int64Array) -> bool:
    """Like `_add_words`, if all rows are in group 0. Return False if sums are not `checked`."""
    total = sums[0]
    wrapped = np.int64(0)
    if checked:
        for i in range(words.size):
            word = words[i] if mask.size == 0 or mask[i] != 0 else np.int64(0)
            after = total + word
            wrapped |= (total ^ after) & (word ^ after)
            total = after
    elif mask.size == 0:
        for i in range(words.size):
            total += words[i]
    else:
        for i in range(words.size):
            total += words[i] if mask[i] != 0 else np.int64(0)
    sums[0] = total
    return wrapped < 0


@kernel
def _add_doubles(numbers: Int32Array, doubles: DoubleArray, mask: UInt8Array, sums: DoubleArray) -> None:
    """sums[numbers[i]] += doubles[i]; nulls add nothing."""
    if mask.size == 0:
        for i in range(numbers.size):
            sums[np.uint32(numbers[i])] += doubles[i]
    else:
        for i in range(numbers.size):
            if mask[i] != 0:
                sums[np.uint32(numbers[i])] += doubles[i]


@kernel
def _sum_doubles(doubles: DoubleArray, mask: UInt8Array) -> float:
    """Return the sum of all values that are not null. Without nulls, four sums are interleaved: additions overlap."""
    a = b = c = d = 0.0
    n = doubles.size
    if mask.size == 0:
        for i in range(0, n - 3, 4):
            a += doubles[i]
            b += doubles[i + 1]
            c += doubles[i + 2]
            d += doubles[i + 3]
        for i in range(n - n % 4, n):
            a += doubles[i]
    else:
        for i in range(n):
            if mask[i] != 0:
                a += doubles[i]
    return (a + b) + (c + d)
