"""Exact sums of decimals: 128 bits per group, or 64 bits while all sums are sure to fit.

Every morsel is scanned for its largest magnitude m. While the largest sum so far + rows * m is below 2**63, and all
values fit a word, sums are words. After that each sum also has a high half, and additions carry:

    low'  = low + value.low              (modulo 2**64)
    high' = high + value.high + (1 if low' wrapped around)

Sums of values of up to 28 digits have ten digits to spare: in 128 bits they cannot overflow before 10**10 rows. Sums of
longer values are checked after each addition, in the order of the rows. A sum of more than 38 digits becomes null and
remains null, as in Spark when it stores its buffer after each row. Spark may add in any order, and the order of the
rows is one of them: a sum that exceeds 38 digits only in between is null in one order, and not null in another.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int32Array, Int64Array, UInt8Array, view_values
from sparkext.kernels.columns.growing import HeldArrays, decimal_array, grow_array
from sparkext.kernels.groups.group_rows import GroupRows
from sparkext.kernels.keys.normalised import decimal_halves
from sparkext.kernels.runtime.jit import freeze, kernel

MOST_DIGITS = 38
_MORE_DIGITS = 10  # additional digits of a sum
_WORD_LIMIT = 1 << 63


class DecimalSums(HeldArrays):
    """Sums of decimals, group by group: see the module's text.

    Values are decimals, or int64: unscaled, of the declared precision and scale.
    """

    def __init__(self, value_type: pa.DataType) -> None:
        self.sum_type = pa.decimal128(min(MOST_DIGITS, value_type.precision + _MORE_DIGITS), value_type.scale)
        self._checked = value_type.precision + _MORE_DIGITS > MOST_DIGITS
        self._low = np.zeros(0, dtype=np.int64)
        self._high: Int64Array | None = None  # None while the sums are words
        self._overflown = np.zeros(0, dtype=np.uint8)  # empty if sums are not checked
        self._bound = 0  # an upper bound of the sums' magnitudes, while they are words

    def add(self, rows: GroupRows, values: pa.Array) -> None:
        """Add the values that are not null."""
        is_word = pa.types.is_int64(values.type)
        words = view_values(values, np.int64) if is_word else freeze(decimal_halves(values).reshape(-1))
        step = 1 if is_word else 2
        self._low = grow_array(self._low, rows.groups)
        if self._high is None:
            largest = int(_largest_magnitude(words, step, rows.mask))
            if largest >= 0 and self._fits(largest * rows.rows):
                if rows.numbers is None:
                    self._low[0] += _sum_words(words, step, rows.mask)
                else:
                    _add_narrow(rows.numbers, words, step, rows.mask, self._low)
                return
            self._high = self._low >> 63
        self._high = grow_array(self._high, rows.groups)
        if self._checked:
            self._overflown = grow_array(self._overflown, rows.groups)
        _add_wide(rows.all_numbers, words, step, rows.mask, self._low, self._high, self._overflown)

    def _fits(self, more: int) -> bool:
        """Return whether sums remain words if at most `more` is added to each; update their bound if so."""
        if self._bound + more >= _WORD_LIMIT and self._low.size:
            self._bound = max(int(self._low.max()), -int(self._low.min()))
        if self._bound + more >= _WORD_LIMIT:
            return False
        self._bound += more
        return True

    def array(self, start: int, stop: int) -> pa.Array:
        """Return the sums of the groups start to before stop, null if they have overflown."""
        self._low = grow_array(self._low, stop)
        low = self._low[start:stop]
        if self._high is None:
            return decimal_array(low, low >> 63, self.sum_type, None)
        self._high = grow_array(self._high, stop)
        mask = None
        if self._checked:
            self._overflown = grow_array(self._overflown, stop)
            mask = 1 - self._overflown[start:stop]
        return decimal_array(low, self._high[start:stop], self.sum_type, mask)


@kernel
def _largest_magnitude(words: Int64Array, step: int, mask: UInt8Array) -> int:
    """Return the largest magnitude of a value, or -1 if the magnitude of a value does not fit a word.

    Value i is words[i] for step 1; for step 2 its low half is words[2 * i], and its high half the next word.
    """
    least = np.int64(0)
    most = np.int64(0)
    beyond = np.int64(0)
    if step == 1:
        for i in range(words.size):
            word = words[i] if mask.size == 0 or mask[i] != 0 else np.int64(0)
            least = min(least, word)
            most = max(most, word)
    else:
        for i in range(words.size // 2):
            low, high = words[2 * i], words[2 * i + 1]
            if mask.size != 0 and mask[i] == 0:
                low = high = np.int64(0)
            beyond |= high ^ (low >> 63)
            least = min(least, low)
            most = max(most, low)
    if beyond != 0 or least == np.int64(-0x8000000000000000):
        return np.int64(-1)
    return max(-least, most)


@kernel
def _add_narrow(numbers: Int32Array, words: Int64Array, step: int, mask: UInt8Array, sums: Int64Array) -> None:
    """Add values that fit a word (the low half), to sums that do not overflow a word."""
    if mask.size == 0:
        for i in range(numbers.size):
            sums[np.uint32(numbers[i])] += words[step * i]
    else:
        for i in range(numbers.size):
            if mask[i] != 0:
                sums[np.uint32(numbers[i])] += words[step * i]


@kernel
def _sum_words(words: Int64Array, step: int, mask: UInt8Array) -> int:
    """Return the sum of values that fit a word, if the sum does, too."""
    total = np.int64(0)
    for i in range(words.size // step):
        if mask.size == 0 or mask[i] != 0:
            total += words[step * i]
    return total


@kernel
def _add_wide(
    numbers: Int32Array,
    words: Int64Array,
    step: int,
    mask: UInt8Array,
    lows: Int64Array,
    highs: Int64Array,
    overflown: UInt8Array,
) -> None:
    """Add values in 128 bits; flag sums of more than 38 digits, unless there are no flags."""
    checked = overflown.size != 0
    limit_high, limit_low = np.int64(0x4B3B4CA85A86C47A), np.uint64(0x098A224000000000)  # 10**38
    for i in range(numbers.size):
        if mask.size != 0 and mask[i] == 0:
            continue
        group = np.uint32(numbers[i])
        if checked and overflown[group] != 0:
            continue
        low = words[step * i]
        high = low >> 63 if step == 1 else words[step * i + 1]
        sum_low = np.uint64(lows[group]) + np.uint64(low)
        before = highs[group]
        sum_high = before + high + np.int64(sum_low < np.uint64(low))
        lows[group] = np.int64(sum_low)
        highs[group] = sum_high
        if checked:
            # Two numbers of 38 digits may wrap around 128 bits, once.
            wrapped = ((before ^ sum_high) & (high ^ sum_high)) < 0
            positive = sum_high > limit_high or (sum_high == limit_high and sum_low >= limit_low)
            # -10**38 is (~limit_high, -limit_low), as limit_low is not 0.
            low_limit = np.uint64(0) - limit_low
            negative = sum_high < ~limit_high or (sum_high == ~limit_high and sum_low <= low_limit)
            overflown[group] = wrapped or positive or negative
