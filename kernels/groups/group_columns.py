"""Key columns of groups: values become words that are equal as in SQL's GROUP BY, and words of groups become values.

    column type                            words (int64)                                             null
    ------------------------------------   -------------------------------------------------------   -------------
    boolean, integers, date, times         the value                                                 in a mask
    float, double                          `column_words`: -0.0 = 0.0, one NaN                       in a mask
    decimal up to 18 digits                the unscaled value                                        in a mask
    longer decimal                         two: the high half, and the low half                      in a mask
    text, while none exceeds seven bytes   a byte 1 and its bytes, as a number: ab = 0x01_61_62      0
    text, once one does                    its code in a dictionary                                  a code, too

In this way short texts need no dictionary, and texts of one or two bytes are numbers of a small range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import (
    Int32Array,
    Int64Array,
    UInt8Array,
    allocate_array,
    is_var,
    unpack_validity,
    view_raw_var_bytes,
)
from sparkext.kernels.columns.growing import HeldArrays, decimal_array, grow_array, pack_validity
from sparkext.kernels.groups.text_dictionary import TextDictionary, large_type
from sparkext.kernels.keys.hashing import FULL_MASK
from sparkext.kernels.keys.normalised import column_words, decimal_halves, word_bits
from sparkext.kernels.keys.value_words import words_array
from sparkext.kernels.runtime.intrinsics import load_u64
from sparkext.kernels.runtime.jit import NO_MASK, AnyArray, freeze, inlined, kernel

LONGEST_INLINE = 7


class Field(NamedTuple):
    """Words int64[n] and their mask: uint8[n], zero if null; it is empty if no row is null."""

    words: Int64Array
    mask: UInt8Array


class KeyColumn(Protocol):
    """One column of the keys: encodes morsels, and stores the words of each group."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def encode(self, column: pa.Array) -> tuple[Sequence[Field], bool]:
        """Return the words of a morsel, and whether the stored words of all groups have changed by a new encoding."""

    def remember(self, fields: Sequence[Field], rows: Int32Array) -> None:
        """Append the words of `rows`, the first rows of a morsel's new groups."""

    def read_fields(self) -> Sequence[Field]:
        """Return the words of all groups."""

    def keys(self, start: int, stop: int) -> pa.Array:
        """Return the values of the groups start to before stop."""


def create_key_column(arrow_type: pa.DataType, hash_mask: int = FULL_MASK) -> KeyColumn:
    """Return the column for keys of this type. Raises `TypeError` if rows cannot be grouped by this type."""
    if is_var(arrow_type):
        return TextColumn(arrow_type, hash_mask)
    if pa.types.is_decimal128(arrow_type) or word_bits(arrow_type) is not None:
        return FixedColumn(arrow_type)
    raise TypeError(f"rows cannot be grouped by values of type {arrow_type}")


class FixedColumn:
    """A column of a fixed width: one word per value, two for decimals of more than 18 digits."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._type = arrow_type
        self._is_wide = word_bits(arrow_type) is None
        self._count = 0
        self._words = [np.empty(0, dtype=np.int64) for _ in range(1 + self._is_wide)]
        self._valid: UInt8Array | None = None

    @property
    def nbytes(self) -> int:
        """See `KeyColumn`."""
        return sum(words.nbytes for words in self._words) + (0 if self._valid is None else self._valid.nbytes)

    def encode(self, column: pa.Array) -> tuple[Sequence[Field], bool]:
        """See `KeyColumn`. Words of nulls are undefined."""
        if pa.types.is_null(column.type):
            column = pa.nulls(len(column), self._type)
        valid = unpack_validity(column)
        mask = NO_MASK if valid is None else valid
        if not self._is_wide:
            return [Field(column_words(column), mask)], False
        halves = decimal_halves(column)
        return [Field(freeze(halves[:, half].copy()), mask) for half in (1, 0)], False

    def remember(self, fields: Sequence[Field], rows: Int32Array) -> None:
        """See `KeyColumn`."""
        stop = self._count + rows.size
        for number, field in enumerate(fields):
            self._words[number] = grow_array(self._words[number], stop)
            self._words[number][self._count : stop] = field.words[rows]
        mask = fields[0].mask
        if self._valid is None and mask.size:
            self._valid = np.ones(self._words[0].size, dtype=np.uint8)
        if self._valid is not None:
            self._valid = grow_array(self._valid, stop)
            self._valid[self._count : stop] = mask[rows] if mask.size else 1
        self._count = stop

    def read_fields(self) -> Sequence[Field]:
        """See `KeyColumn`."""
        mask = NO_MASK if self._valid is None else freeze(self._valid[: self._count])
        return [Field(freeze(words[: self._count]), mask) for words in self._words]

    def keys(self, start: int, stop: int) -> pa.Array:
        """See `KeyColumn`."""
        mask = None if self._valid is None else self._valid[start:stop]
        if self._is_wide:
            high, low = (words[start:stop] for words in self._words)
            return decimal_array(low, high, self._type, mask)
        return words_array(self._words[0][start:stop], self._type, mask)


class TextColumn(HeldArrays):
    """A column of strings or bytes: see the module's table."""

    def __init__(self, arrow_type: pa.DataType, hash_mask: int = FULL_MASK) -> None:
        self._type = arrow_type
        self._dictionary = TextDictionary(hash_mask)
        self._inline = True
        self._count = 0
        self._words = np.empty(0, dtype=np.int64)

    @property
    def dictionary(self) -> TextDictionary | None:
        """The dictionary that the words are codes of; None while the words are the texts themselves."""
        return None if self._inline else self._dictionary

    def encode(self, column: pa.Array) -> tuple[Sequence[Field], bool]:
        """See `KeyColumn`."""
        if pa.types.is_null(column.type):
            column = pa.nulls(len(column), self._type)
        recoded = False
        if self._inline:
            offsets, data = view_raw_var_bytes(column)
            mask = unpack_validity(column)
            words = allocate_array(len(column), np.int64)
            if _inline_texts(offsets, data, NO_MASK if mask is None else mask, words):
                return [Field(freeze(words), NO_MASK)], False
            self._recode()
            recoded = True
        return [Field(self._dictionary.codes(column), NO_MASK)], recoded

    def _recode(self) -> None:
        """Replace the words of all groups by codes of the dictionary."""
        codes = self._dictionary.codes(self.keys(0, self._count))
        self._inline = False
        self._words[: self._count] = codes

    def remember(self, fields: Sequence[Field], rows: Int32Array) -> None:
        """See `KeyColumn`."""
        stop = self._count + rows.size
        self._words = grow_array(self._words, stop)
        self._words[self._count : stop] = fields[0].words[rows]
        self._count = stop

    def read_fields(self) -> Sequence[Field]:
        """See `KeyColumn`."""
        return [Field(freeze(self._words[: self._count]), NO_MASK)]

    def keys(self, start: int, stop: int) -> pa.Array:
        """See `KeyColumn`."""
        if not self._inline:
            return self._dictionary.texts(self._words[start:stop], self._type)
        words = freeze(self._words[start:stop])
        offsets = np.empty(words.size + 1, dtype=np.int64)
        data = np.empty(LONGEST_INLINE * words.size, dtype=np.uint8)
        used = _texts_of_words(words, offsets, data)
        buffers = [pack_validity((words != 0).view(np.uint8)), pa.py_buffer(offsets), pa.py_buffer(data[:used].copy())]
        return pa.Array.from_buffers(large_type(self._type), words.size, buffers).cast(self._type)


@inlined
def _reverse_bytes(word: np.uint64) -> np.uint64:
    """Return the eight bytes in reverse order."""
    low, middle = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
    word = ((word & low) << np.uint64(8)) | ((word >> np.uint64(8)) & low)
    word = ((word & middle) << np.uint64(16)) | ((word >> np.uint64(16)) & middle)
    return (word << np.uint64(32)) | (word >> np.uint64(32))


@kernel
def _inline_texts(offsets: AnyArray, data: UInt8Array, valid: UInt8Array, out: Int64Array) -> bool:
    """out[i] = the word of a text, zero for a null; stop and return False at a text of more than seven bytes.

    Eight bytes are read at once, except if they would end after `data`.
    """
    none_null = valid.size == 0
    one = np.uint64(1)
    for i in range(out.size):
        start = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - start
        if not (none_null or valid[i] != 0):
            out[i] = 0
        elif length > LONGEST_INLINE:
            return False
        elif start + 8 <= data.size:
            bits = np.uint64(8 * length)
            # Two shifts: one by 64, for the empty text, is undefined.
            text = (_reverse_bytes(load_u64(data, start)) >> one) >> (np.uint64(63) - bits)
            out[i] = np.int64(text | (one << bits))
        else:
            word = one
            for j in range(start, start + length):
                word = (word << np.uint64(8)) | np.uint64(data[j])
            out[i] = np.int64(word)
    return True


@kernel
def _texts_of_words(words: Int64Array, offsets: Int64Array, data: UInt8Array) -> int:
    """Write the bytes and offsets (n + 1) of every word's text; return the number of bytes."""
    at = 0
    offsets[0] = 0
    for i in range(words.size):
        word = words[i]
        length = 0
        while word >> (8 * length) > 1:
            length += 1
        for j in range(length):
            data[at + j] = np.uint8((word >> (8 * (length - 1 - j))) & 255)
        at += length
        offsets[i + 1] = at
    return at
