"""Packing of the words of several key columns into one word, or as few as possible: digits in a mixed radix.

A field is a digit whose radix is the size of the range of its words so far. If a column has had nulls, their code is 0:

    ranges (7, 9), with nulls, and (100, 149)       (8, 120) = (8 - 7 + 1) * 50 + (120 - 100) = 120
                                                    (null, 100) = 0

Digits are packed in order, as many into each packed word as fit 64 bits. If a column has words outside its range, the
range is extended to include them, and then by its new size again, so that a table has few layouts in its lifetime.
After each new layout, all groups are inserted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array, allocate_array
from sparkext.kernels.groups.group_columns import Field
from sparkext.kernels.keys.normalised import word_range
from sparkext.kernels.runtime.jit import freeze, kernel

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_WORD = 1 << 64
_HALF_WORD = 1 << 63


class Digit(NamedTuple):
    """One field's part of a word. `flag`: the digit is 1 if the field is not null; `low` and `radix` are unused."""

    field: int
    low: int
    radix: int
    nullable: bool
    flag: bool = False


class KeyLayout:
    """See the module's example. The words of `pack` distinguish keys until the next call of `cover`."""

    def __init__(self, fields: int) -> None:
        self._ranges: list[tuple[int, int] | None] = [None] * fields
        self._nullable = [False] * fields
        self._words: list[list[Digit]] = []

    @property
    def width(self) -> int:
        """The number of words of a key."""
        return len(self._words)

    @property
    def direct(self) -> bool:
        """Whether keys are the unchanged words of the only field: the lowest word is not subtracted."""
        return len(self._ranges) == 1 and not self._nullable[0]

    @property
    def low(self) -> int:
        """The lowest packed word."""
        return (self._ranges[0] or (0, 0))[0] if self.direct else 0

    @property
    def size(self) -> int:
        """The number of possible packed words; at least 2**64 if a key has several words."""
        if self.width != 1:
            return _WORD
        size = 1
        for digit in self._words[0]:
            size *= 2 if digit.flag else digit.radix
        return size

    def cover(self, fields: Sequence[Field]) -> None:
        """Extend the ranges to these words. Keys packed before are invalid afterwards, unless they are `direct`."""
        for number, (words, mask) in enumerate(fields):
            self._nullable[number] |= mask.size > 0
            count, low, high = word_range(words, mask)
            bounds = self._ranges[number]
            if count and (bounds is None or low < bounds[0] or high > bounds[1]):
                self._ranges[number] = _extend_range(bounds, int(low), int(high))
            elif bounds is None:
                self._ranges[number] = 0, 0  # the digit uses this range from now on
        self._arrange()

    def _arrange(self) -> None:
        """Distribute digits over words, in order."""
        self._words = [[]]
        product = 1
        for digit in self._digits():
            radix = 2 if digit.flag else digit.radix
            if self._words[-1] and product * radix > _WORD:
                self._words.append([])
                product = 1
            self._words[-1].append(digit)
            product *= radix

    def _digits(self) -> list[Digit]:
        digits = []
        for number, (bounds, nullable) in enumerate(zip(self._ranges, self._nullable, strict=True)):
            low, high = bounds or (0, 0)
            radix = high - low + 1
            if nullable and radix > _HALF_WORD:
                digits.append(Digit(number, 0, 2, nullable=False, flag=True))
                digits.append(Digit(number, low, radix, nullable=False))
            else:
                digits.append(Digit(number, low, radix + nullable, nullable))
        return digits

    def pack(self, fields: Sequence[Field]) -> list[Int64Array] | None:
        """Return int64[n] for each word of a key; None if a value is outside its range, or an unexpected null.

        A packed word of a single field without nulls is the field's word, unchanged and not checked against the range.
        """
        if not all(self._nullable[number] or mask.size == 0 for number, (_, mask) in enumerate(fields)):
            return None
        packed = []
        for digits in self._words:
            if len(digits) == 1 and not self._nullable[digits[0].field]:
                packed.append(fields[digits[0].field].words)
                continue
            word = allocate_array(fields[0].words.size, np.int64)
            for position, digit in enumerate(digits):
                words, mask = fields[digit.field]
                low, most = np.int64(digit.low), np.uint64(digit.radix - 1)
                if digit.flag:
                    _pack_flag(mask, position == 0, word)
                elif not _pack_word(words, mask, low, most, digit.nullable, position == 0, word):
                    return None
            packed.append(freeze(word))
        return packed


def _extend_range(bounds: tuple[int, int] | None, low: int, high: int) -> tuple[int, int]:
    """Return a range that includes `bounds`, `low` and `high`; on an exceeded side it is extended by its size again."""
    if bounds is None:
        return low, high
    new_low, new_high = min(low, bounds[0]), max(high, bounds[1])
    size = new_high - new_low + 1
    if low < bounds[0]:
        new_low = max(new_low - size, _LOWEST)
    if high > bounds[1]:
        new_high = min(new_high + size, _HIGHEST)
    return new_low, new_high


@kernel
def _pack_word(
    words: Int64Array, mask: UInt8Array, low: np.int64, most: np.uint64, nullable: bool, first: bool, packed: Int64Array
) -> bool:
    """Append a digit, at most `most`, to every word; a null is 0. Return whether all digits are within their range.

    If the digit is the `first` of its word, the old value of `packed` is ignored.
    """
    none_null = mask.size == 0
    least = np.uint64(low) - np.uint64(nullable)
    radix = most + np.uint64(1)
    outside = False
    if none_null and first:  # two loops without branches, which are vectorised
        for i in range(words.size):
            code = np.uint64(words[i]) - least
            outside |= (code > most) | (code < np.uint64(nullable))
            packed[i] = np.int64(code)
    elif none_null:
        for i in range(words.size):
            code = np.uint64(words[i]) - least
            outside |= (code > most) | (code < np.uint64(nullable))
            packed[i] = np.int64(np.uint64(packed[i]) * radix + code)
    else:
        for i in range(words.size):
            code = np.uint64(words[i]) - least
            if mask[i] == 0:
                code = np.uint64(0)
            else:
                outside |= (code > most) | (code < np.uint64(nullable))
            packed[i] = np.int64(code if first else np.uint64(packed[i]) * radix + code)
    return not outside


@kernel
def _pack_flag(mask: UInt8Array, first: bool, packed: Int64Array) -> None:
    """Append a digit to every word: 1 if the row is not null."""
    none_null = mask.size == 0
    for i in range(packed.size):
        code = np.int64(none_null or mask[i] != 0)
        packed[i] = code if first else packed[i] * 2 + code
