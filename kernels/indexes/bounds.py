"""Comparisons with a build column, normalised: every probe row requires one interval of words.

A build column that is compared (`start <= x`, `x < end`) becomes one order-preserving word per row. Integers, dates,
timestamps, doubles and decimals of up to 18 digits have such words (see `kernels.keys.normalised`). For strings,
binaries and longer decimals, the word is the rank of the value among the distinct values of the build side:

    build column    distinct, in order    words        probe value "b"    required
    "d" "a" "d"     "a" "d"               1 0 1        build >= "b"       words from 1 on
                                                       build <  "b"       words up to 0

All comparisons with one column together are one closed interval `[low, high]`, empty if low > high: `x < v` is
`x <= v - 1`, as words are integers. A comparison with a null on either side does not hold: such a row is not valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.columns.buffers import (
    Int64Array,
    UInt8Array,
    VarBytes,
    as_binary,
    is_var,
    unpack_validity,
    view_var_bytes,
)
from sparkext.kernels.keys.bytes_equal import compare_spans
from sparkext.kernels.keys.normalised import column_words, decimal_halves, word_bits
from sparkext.kernels.runtime.jit import NO_MASK, freeze, kernel

COMPARISONS = ("<", "<=", ">", ">=")
LOWEST = -(2**63)
HIGHEST = 2**63 - 1
_DECIMAL_BYTES = 16


@dataclass(frozen=True)
class Bound:
    """The comparison `build op value`, with a value of the build column's type for each of n probe rows (`values`)."""

    op: str
    values: pa.Array


@dataclass(frozen=True)
class Intervals:
    """The interval of words that each of n probe rows requires: `low` and `high` (int64[n], both included).

    `lower` and `upper`: whether any row is bounded on that side; an empty interval is bounded on both sides. `valid` is
    uint8[n], 0 if a value was null, or None if no value was.
    """

    low: Int64Array
    high: Int64Array
    lower: bool
    upper: bool
    valid: UInt8Array | None

    def picked(self, rows: Int64Array) -> Intervals:
        """Return the intervals of these probe rows."""
        valid = None if self.valid is None else freeze(self.valid[rows])
        return replace(self, low=freeze(self.low[rows]), high=freeze(self.high[rows]), valid=valid)


@dataclass(frozen=True)
class BoundColumn:
    """A compared column of a build side: int64[n] `words`, undefined for nulls.

    `ranked`: the distinct values as byte strings, in order, if the words are ranks; else None.
    """

    words: Int64Array
    ranked: VarBytes | None


def encode_bound_column(column: pa.Array) -> BoundColumn:
    """Return the words of a build column. Nulls are excluded from the ranked values."""
    if not is_ranked(column.type):
        return BoundColumn(column_words(column), None)
    rows = np.flatnonzero(np.asarray(pc.is_valid(column)))
    values = as_binary(_encode_ordered_bytes(column)).take(pa.array(rows))
    encoded = pc.dictionary_encode(values)
    order = pc.array_sort_indices(encoded.dictionary)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    words = np.zeros(len(column), dtype=np.int64)
    words[rows] = ranks[encoded.indices.to_numpy()]
    return BoundColumn(freeze(words), view_var_bytes(encoded.dictionary.take(order)))


def intersect_bounds(bounds: Sequence[Bound], ranked: VarBytes | None, length: int) -> Intervals:
    """Return the intersection of all `bounds` on one build column, for each of `length` probe rows."""
    low = np.full(length, LOWEST, dtype=np.int64)
    high = np.full(length, HIGHEST, dtype=np.int64)
    valid: UInt8Array | None = None
    nothing = False
    for bound in bounds:
        mask = unpack_validity(bound.values)
        if mask is not None:
            valid = mask if valid is None else valid & mask
        below, upto = _locate_values(bound.values, mask, ranked)
        nothing |= _narrow(below, upto, COMPARISONS.index(bound.op), ranked is not None, low, high)
    ops = {bound.op for bound in bounds}
    return Intervals(
        freeze(low),
        freeze(high),
        nothing or bool(ops & {">", ">="}),
        nothing or bool(ops & {"<", "<="}),
        None if valid is None else freeze(valid),
    )


def is_ranked(arrow_type: pa.DataType) -> bool:
    """Return whether values of this type are compared by their ranks, as they do not fit a word."""
    return word_bits(arrow_type) is None


def _encode_ordered_bytes(column: pa.Array) -> VarBytes:
    """Return a byte string per row, in the order of the values. Wide decimals: 16 bytes, big-endian, sign flipped."""
    if is_var(column.type):
        return view_var_bytes(column)
    halves = decimal_halves(column).view(np.uint64)
    data = np.empty((len(column), 2), dtype=">u8")
    data[:, 0] = halves[:, 1] ^ np.uint64(1 << 63)
    data[:, 1] = halves[:, 0]
    offsets = np.arange(len(column) + 1, dtype=np.int64) * _DECIMAL_BYTES
    return VarBytes(freeze(offsets), freeze(data.reshape(-1).view(np.uint8)))


def _locate_values(values: pa.Array, mask: UInt8Array | None, ranked: VarBytes | None) -> tuple[Int64Array, Int64Array]:
    """Return the words of the values, twice; for ranks, the numbers of distinct build values below and up to each."""
    if ranked is None:
        words = column_words(values)
        return words, words
    source = _encode_ordered_bytes(values)
    below, upto = np.empty((2, len(values)), dtype=np.int64)
    _rank(source.offsets, source.data, NO_MASK if mask is None else mask, *ranked, below, upto)
    return freeze(below), freeze(upto)


@kernel
def _narrow(below: Int64Array, upto: Int64Array, op: int, ranks: bool, low: Int64Array, high: Int64Array) -> bool:
    """Intersect [low, high] with the interval of `build op value`; `op` is a position in `COMPARISONS`.

    Return whether any value requires words below the lowest or above the highest word. With `ranks`, `below` and `upto`
    count the ranks below the value and up to it; otherwise both are its word.
    """
    lowest = np.int64(-0x7FFFFFFFFFFFFFFF - 1)
    highest = np.int64(0x7FFFFFFFFFFFFFFF)
    nothing = False
    for i in range(low.size):
        if ranks:
            if op == 0:
                high[i] = min(high[i], below[i] - 1)
            elif op == 1:
                high[i] = min(high[i], upto[i] - 1)
            elif op == 2:
                low[i] = max(low[i], upto[i])
            else:
                low[i] = max(low[i], below[i])
            continue
        word = below[i]
        if (op == 0 and word == lowest) or (op == 2 and word == highest):
            low[i] = highest
            high[i] = lowest
            nothing = True
        elif op == 0:
            high[i] = min(high[i], word - 1)
        elif op == 1:
            high[i] = min(high[i], word)
        elif op == 2:
            low[i] = max(low[i], word + 1)
        else:
            low[i] = max(low[i], word)
    return nothing


@kernel
def _rank(
    offsets: Int64Array,
    data: UInt8Array,
    valid: UInt8Array,
    key_offsets: Int64Array,
    key_data: UInt8Array,
    below: Int64Array,
    upto: Int64Array,
) -> None:
    """below[i] = number of the distinct, sorted keys that are less than byte string i; upto[i]: less than or equal."""
    all_valid = valid.size == 0
    size = key_offsets.size - 1
    for i in range(below.size):
        low, high = 0, size
        equal = 0
        if all_valid or valid[i] != 0:
            start, end = offsets[i], offsets[i + 1]
            while low < high:
                middle = (low + high) >> 1
                order = compare_spans(data, start, end, key_data, key_offsets[middle], key_offsets[middle + 1])
                if order > 0:
                    low = middle + 1
                else:
                    high = middle
                    equal |= order == 0
        below[i] = low
        upto[i] = low + equal
