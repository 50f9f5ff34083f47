"""Values as words: hashes and order. Texts are stored as codes.

A double is stored as its bits, with a single bit pattern for NaN.
"""

from __future__ import annotations

import numpy as np

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array
from sparkext.kernels.keys.hashing import mix_word
from sparkext.kernels.runtime.intrinsics import word_of
from sparkext.kernels.runtime.jit import inlined

NAN = 0x7FF8000000000000
INTEGER_ORDER, DOUBLE_ORDER, TEXT_ORDER = range(3)


@inlined
def hashed(so_far: int, word: int) -> int:
    """Return a hash extended by one more word."""
    mixed: int = np.int64(mix_word(np.int64(so_far ^ word)))
    return mixed


@inlined
def double_word(value: float) -> int:
    """Return a double as a word."""
    return NAN if value != value else word_of(value)


@inlined
def normal(word: int) -> int:
    """Return the word of a double as a key: -0.0 becomes 0.0."""
    return 0 if word == np.int64(-0x8000000000000000) else word


@inlined
def order_double(word: int) -> int:
    """Return an integer in the order of doubles: -0.0 before 0.0, NaN last. The function is its own inverse."""
    return word ^ np.int64(0x7FFFFFFFFFFFFFFF) if word < 0 else word


@inlined
def is_before(one: int, two: int, order: int, starts: Int64Array, data: UInt8Array) -> bool:
    """Return whether a value is before another. The text of a code is `data[starts[code]:starts[code + 1]]`."""
    if order == INTEGER_ORDER:
        return one < two
    if order == DOUBLE_ORDER:
        return order_double(one) < order_double(two)
    return compare_texts(one, two, starts, data) < 0


@inlined
def compare_texts(one: int, two: int, starts: Int64Array, data: UInt8Array) -> int:
    """Return a number below, equal to or above 0 if a text is before, equal to or after another."""
    if one == two:
        return 0
    length, other = starts[one + 1] - starts[one], starts[two + 1] - starts[two]
    for place in range(min(length, other)):
        difference = np.int64(data[starts[one] + place]) - np.int64(data[starts[two] + place])
        if difference != 0:
            return difference
    return length - other
