"""min and max of values of a fixed width, and bitwise and, or and xor of integers: one or two words per group."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int32Array, Int64Array, UInt8Array
from sparkext.kernels.columns.growing import decimal_array, grow_array
from sparkext.kernels.groups.accumulator import Accumulator
from sparkext.kernels.groups.group_rows import GroupRows, SeenGroups
from sparkext.kernels.keys.normalised import decimal_halves
from sparkext.kernels.keys.value_words import ordered_words, words_array
from sparkext.kernels.runtime.jit import freeze, inlined, kernel

_MIN, _MAX, _AND, _OR, _XOR = range(5)
_OPERATIONS = {"min": _MIN, "max": _MAX, "bit_and": _AND, "bit_or": _OR, "bit_xor": _XOR}
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_NEUTRAL = {_MIN: _MOST, _MAX: _LEAST, _AND: -1, _OR: 0, _XOR: 0}


class WordAccumulator(Accumulator):
    """min, max, bit_and, bit_or, bit_xor: [value, null if there was none]. One word per group.

    For types that `ordered_words` supports. NaN is the largest number. -0.0 equals 0.0, so min and max keep the zero
    that was added first, as Spark does.
    """

    value_type: pa.DataType

    def __init__(self, function: str, value_type: pa.DataType) -> None:
        super().__init__(value_type)
        self._operation = _OPERATIONS[function]
        self._equal_zeros = pa.types.is_floating(value_type)
        self._words = np.zeros(0, dtype=np.int64)
        self._seen = SeenGroups()

    def _add(self, rows: GroupRows, values: pa.Array) -> None:
        self._words = grow_array(self._words, rows.groups, _NEUTRAL[self._operation])
        words = ordered_words(values)
        if rows.numbers is None:
            _absorb_all(self._operation, self._equal_zeros, words, rows.mask, self._words)
        elif self._operation <= _MAX:
            _absorb_extremes(self._operation == _MAX, self._equal_zeros, rows.numbers, words, rows.mask, self._words)
        else:
            _absorb_bits(self._operation, rows.numbers, words, rows.mask, self._words)
        self._seen.add(rows)

    def states(self, start: int, stop: int) -> list[pa.Array]:
        """See `Accumulator`."""
        self._words = grow_array(self._words, stop, _NEUTRAL[self._operation])
        return [words_array(self._words[start:stop], self.value_type, self._seen.flags(start, stop))]


class LongDecimalExtremeAccumulator(Accumulator):
    """min and max of decimals of more than 18 digits: [value, null if there was none]. Two words per group."""

    value_type: pa.DataType

    def __init__(self, function: str, value_type: pa.DataType) -> None:
        super().__init__(value_type)
        self._greatest = function == "max"
        self._low = np.zeros(0, dtype=np.int64)
        self._high = np.zeros(0, dtype=np.int64)
        self._seen = SeenGroups()

    def _reserve(self, groups: int) -> None:
        """Reserve states. A group begins with an extreme 128-bit number, which is beyond all decimals of 38 digits."""
        self._low = grow_array(self._low, groups)
        self._high = grow_array(self._high, groups, _LEAST if self._greatest else _MOST)

    def _add(self, rows: GroupRows, values: pa.Array) -> None:
        self._reserve(rows.groups)
        halves = freeze(decimal_halves(values).reshape(-1))
        _absorb_decimals(self._greatest, rows.all_numbers, halves, rows.mask, self._low, self._high)
        self._seen.add(rows)

    def states(self, start: int, stop: int) -> list[pa.Array]:
        """See `Accumulator`."""
        self._reserve(stop)
        low, high = self._low[start:stop], self._high[start:stop]
        return [decimal_array(low, high, self.value_type, self._seen.flags(start, stop))]


@inlined
def _is_zero(word: np.int64) -> bool:
    """Return whether the word of a float represents 0.0 or -0.0."""
    return word == 0 or word == -1


@inlined
def _find_zero_word(words: Int64Array, mask: UInt8Array) -> np.int64:
    """Return the first word of a zero that is not null. There has to be one."""
    i = 0
    while not _is_zero(words[i]) or (mask.size != 0 and mask[i] == 0):
        i += 1
    return words[i]


@kernel
def _absorb_extremes(
    greatest: bool,
    equal_zeros: bool,
    numbers: Int32Array,
    words: Int64Array,
    mask: UInt8Array,
    states: Int64Array,
) -> None:
    """states[numbers[i]] = the larger (`greatest`) or the smaller of itself and words[i]; unchanged if they are equal.

    With `equal_zeros` the words are of floats, and 0.0 equals -0.0.
    """
    none_null = mask.size == 0
    for i in range(numbers.size):
        group = np.uint32(numbers[i])
        state = states[group]
        better = words[i] > state if greatest else words[i] < state
        if better and (none_null or mask[i] != 0) and not (equal_zeros and _is_zero(words[i]) and _is_zero(state)):
            states[group] = words[i]


@kernel
def _absorb_bits(operation: int, numbers: Int32Array, words: Int64Array, mask: UInt8Array, states: Int64Array) -> None:
    """Combine states[numbers[i]] and words[i] bit by bit."""
    for i in range(numbers.size):
        if mask.size == 0 or mask[i] != 0:
            group = np.uint32(numbers[i])
            if operation == _AND:
                states[group] &= words[i]
            elif operation == _OR:
                states[group] |= words[i]
            else:
                states[group] ^= words[i]


@kernel
def _absorb_all(operation: int, equal_zeros: bool, words: Int64Array, mask: UInt8Array, states: Int64Array) -> None:
    """Combine all words with states[0]. `equal_zeros` is as in `_absorb_extremes`."""
    none_null = mask.size == 0
    state = states[0]
    if operation == _MIN:
        for i in range(words.size):
            state = min(state, words[i] if none_null or mask[i] != 0 else state)
    elif operation == _MAX:
        for i in range(words.size):
            state = max(state, words[i] if none_null or mask[i] != 0 else state)
    elif operation == _AND:
        for i in range(words.size):
            state &= words[i] if none_null or mask[i] != 0 else np.int64(-1)
    elif operation == _OR:
        for i in range(words.size):
            state |= words[i] if none_null or mask[i] != 0 else np.int64(0)
    else:
        for i in range(words.size):
            state ^= words[i] if none_null or mask[i] != 0 else np.int64(0)
    if equal_zeros and _is_zero(state):
        state = states[0] if _is_zero(states[0]) else _find_zero_word(words, mask)
    states[0] = state


@kernel
def _absorb_decimals(
    greatest: bool, numbers: Int32Array, halves: Int64Array, mask: UInt8Array, lows: Int64Array, highs: Int64Array
) -> None:
    """Like `_absorb_extremes`; value i has its low half in halves[2 * i], and its high half in halves[2 * i + 1]."""
    for i in range(numbers.size):
        if mask.size != 0 and mask[i] == 0:
            continue
        group = np.uint32(numbers[i])
        low, high = halves[2 * i], halves[2 * i + 1]
        less = high < highs[group] or (high == highs[group] and np.uint64(low) < np.uint64(lows[group]))
        same = high == highs[group] and low == lows[group]
        if less != greatest and not same:
            lows[group] = low
            highs[group] = high
