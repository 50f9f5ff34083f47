"""Exact sums of doubles from which values can be removed: the result is the double nearest to the exact sum.

A running sum would accumulate rounding errors: 1e20 + 1 - 1e20 would be 0. A superaccumulator is exact (Neal, "Fast
exact summation using small and large superaccumulators", 2015, §2): word k counts multiples of 2^(32 k - 1074), a value
is added to two or three words, and carries are propagated once in a while.

    [67 words │ values since the last propagation of carries │ NaNs │ infinities │ negative infinities]
"""

from __future__ import annotations

import numpy as np

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.runtime.intrinsics import word_of
from sparkext.kernels.runtime.jit import inlined

_DIGITS = 67
_PENDING, _NAN, _PLUS, _MINUS = range(_DIGITS, _DIGITS + 4)
SUM_WORDS = _DIGITS + 4
_MOST_PENDING = 1 << 20
_LOW = 0xFFFFFFFF


@inlined
def add_exactly(arena: Int64Array, at: int, value: float, weight: int) -> None:
    """Add a value `weight` times; a negative weight removes it."""
    if value != value:
        arena[at + _NAN] += weight
        return
    bits = word_of(value)
    exponent = (bits >> 52) & 0x7FF
    if exponent == 0x7FF:
        arena[at + (_PLUS if bits > 0 else _MINUS)] += weight
        return
    mantissa = bits & 0xFFFFFFFFFFFFF
    if exponent != 0:
        mantissa |= 1 << 52
        exponent -= 1
    if bits < 0:
        weight = -weight
    digit, shift = at + (exponent >> 5), exponent & 31
    low = (mantissa << shift) & _LOW
    # The bits above the lowest 32, of up to 53 + 31, are divided into two more digits.
    above = mantissa >> (32 - shift)
    middle, high = above & _LOW, above >> 32
    sign = 1 if weight > 0 else -1
    left = abs(weight)
    while left > 0:
        times = min(left, _MOST_PENDING)
        arena[digit] += sign * times * low
        arena[digit + 1] += sign * times * middle
        arena[digit + 2] += sign * times * high
        left -= times
        arena[at + _PENDING] += times
        if arena[at + _PENDING] >= _MOST_PENDING:
            _carry(arena, at)


@inlined
def _carry(arena: Int64Array, at: int) -> None:
    """Propagate carries: each word but the last, which has the sign, then has 32 bits."""
    for place in range(at, at + _DIGITS - 1):
        arena[place + 1] += arena[place] >> 32
        arena[place] &= _LOW
    arena[at + _PENDING] = 0


@inlined
def exact_sum(arena: Int64Array, at: int) -> float:
    """Return the double nearest to the sum."""
    if arena[at + _NAN] > 0 or (arena[at + _PLUS] > 0 and arena[at + _MINUS] > 0):
        return np.nan
    if arena[at + _PLUS] > 0:
        return np.inf
    if arena[at + _MINUS] > 0:
        return -np.inf
    _carry(arena, at)
    is_negative = arena[at + _DIGITS - 1] < 0
    if is_negative:
        _negate(arena, at)
    top = _DIGITS - 1
    while top >= 0 and arena[at + top] == 0:
        top -= 1
    if top < 0:
        return 0.0
    value = _round_digits(arena, at, top)
    if is_negative:
        _negate(arena, at)
        return -value
    return value


@inlined
def _negate(arena: Int64Array, at: int) -> None:
    for place in range(at, at + _DIGITS):
        arena[place] = -arena[place]
    _carry(arena, at)


@inlined
def _round_digits(arena: Int64Array, at: int, top: int) -> float:
    """Return the double nearest to the digits, the highest of which that is not 0 is `top`."""
    length = 0
    while (arena[at + top] >> length) != 0:
        length += 1
    # The first 62 bits, and one more bit: whether any later bit is set. A double has 53 bits.
    word = np.int64(0)
    bits, place = 0, top
    rest = np.int64(0)
    while place >= 0:
        digit = arena[at + place]
        width = length if place == top else 32
        taken = min(width, 62 - bits)
        if taken > 0:
            word = (word << taken) | (digit >> (width - taken))
            bits += taken
        if taken < width:
            rest |= digit & ((1 << (width - taken)) - 1)
        place -= 1
    lowest = 32 * top + length - bits  # the exponent of the last bit of the word
    word = (word << 1) | (1 if rest != 0 else 0)
    return np.ldexp(float(word), lowest - 1075)
