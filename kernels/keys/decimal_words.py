"""Decimals as machine words: Arrow stores 16 bytes for each, but most values need at most 8.

    decimal128      low, high   low, high   ...        words, with the smallest and the largest of them
                    12345    0   -99   -1        ──▶   12345  -99

A value fits a word if its upper half only repeats the sign of the lower half. If the extremes of words are known,
arithmetic need not test each result for overflow (see `expressions.decimal_vectors`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array, allocate_array, unpack_validity
from sparkext.kernels.keys.normalised import decimal_halves
from sparkext.kernels.runtime.jit import NO_MASK, freeze, kernel


class UnscaledDigits(NamedTuple):
    """Unscaled digits, int64[n], all between `least` and `most`; 0 for nulls."""

    digits: Int64Array
    least: int
    most: int


def read_unscaled_digits(column: pa.Array) -> UnscaledDigits | None:
    """Return the unscaled digits of decimals (decimal128), or None if some need more than a machine word."""
    digits = allocate_array(len(column), np.int64)
    extremes = np.zeros(2, dtype=np.int64)
    valid = unpack_validity(column)
    if not _narrow(freeze(decimal_halves(column)), NO_MASK if valid is None else valid, digits, extremes):
        return None
    least, most = extremes.tolist()
    return UnscaledDigits(digits, least, most)


def halves_of(digits: Int64Array) -> Int64Array:
    """Return int64[n, 2]: the two halves, the lower one first, that Arrow stores for each of these decimals."""
    halves: Int64Array = allocate_array(2 * digits.size, np.int64).reshape(digits.size, 2)
    _widen(freeze(digits), halves)
    return halves


@kernel
def _narrow(halves: Int64Array, valid: UInt8Array, digits: Int64Array, extremes: Int64Array) -> bool:
    """Write the lower halves (0 for nulls) and their extremes; return whether all upper halves only repeat the sign.

    `halves` is int64[n, 2]; an empty `valid` means that there are no nulls; `extremes` is int64[2], unchanged if n = 0.
    """
    if digits.size == 0:
        return True
    wide = np.int64(0)
    least, most = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(-0x7FFFFFFFFFFFFFFF - 1)
    if valid.size == 0:
        for i in range(digits.size):
            word = halves[i, 0]
            wide |= halves[i, 1] ^ (word >> 63)
            least, most = min(least, word), max(most, word)
            digits[i] = word
    else:
        for i in range(digits.size):
            word = halves[i, 0] if valid[i] != 0 else 0
            wide |= (halves[i, 1] if valid[i] != 0 else 0) ^ (word >> 63)
            least, most = min(least, word), max(most, word)
            digits[i] = word
    extremes[0], extremes[1] = least, most
    return wide == 0


@kernel
def _widen(digits: Int64Array, halves: Int64Array) -> None:
    """halves[i] = the two halves of digits[i]."""
    for i in range(digits.size):
        halves[i, 0] = digits[i]
        halves[i, 1] = digits[i] >> 63
