"""Normalised join keys: Arrow columns of any key type become one word per row, or one byte string per row.

    column type                          word (int64, order-preserving)
    ----------------------------------   -----------------------------------------------
    integers, date, timestamp, time      the value, sign-extended
    boolean                              0 or 1
    float, double                        total order: -0.0 = 0.0, one NaN above +inf (Spark's rules)
    decimal, up to 18 digits             the unscaled value
    several columns of at most 64 bits   packed, the first column in the highest bits

Several columns, or a null-safe one, are packed tighter if the build side's values allow it: `key_ranges` are the
smallest and largest word of each of its columns, and a key is a number in the mixed radix of the sizes of these ranges:

    ranges (7, 9) and (100, 149)       key (8, 120) = (8 - 7) * 50 + (120 - 100) = 70

A probe value outside its range matches nothing. A word can hold even two columns of 64 bits if their ranges are small,
and such words are often dense enough to be addressed directly.

Everything else (strings, binary, longer decimals, composites of wide ranges) becomes a byte string whose equality is
the equality of the keys. A null-safe column (`<=>`) has one more bit, code or byte for null. A row with a null in any
other column matches nothing, which `NormalisedKeys.valid` records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.columns.buffers import (
    Int64Array,
    UInt8Array,
    VarBytes,
    allocate_array,
    is_var,
    unpack_bitmap,
    unpack_validity,
    view_values,
    view_var_bytes,
)
from sparkext.kernels.runtime.intrinsics import copy_bytes, store_u64
from sparkext.kernels.runtime.jit import NO_MASK, freeze, kernel

_SIGN_BIT = np.int64(-(2**63))
_MAX_WORD_DECIMAL = 18
_PACKED_KEYS = 1 << 63  # non-negative words

KeyRanges = Sequence[tuple[int, int]]
"""(smallest, largest) word of each key column."""

KeyBounds = Sequence[Sequence[int] | None]
"""(smallest, largest) value of each key column, see `key_bounds`."""


@dataclass(frozen=True)
class NormalisedKeys:
    """The keys of one batch or of one build side.

    `words` is int64[n] in the word layout. In the byte layout it is None, and `rows` has the byte strings.
    `valid` is uint8[n], 0 if the key matches nothing (it has a null, or is outside the build side's ranges), or None if
    there is no such key.
    """

    length: int
    words: Int64Array | None
    rows: VarBytes | None
    valid: UInt8Array | None

    @property
    def mask(self) -> UInt8Array:
        """`valid`, or the empty array that kernels read as "all rows are valid"."""
        return NO_MASK if self.valid is None else self.valid


def word_bits(key_type: pa.DataType) -> int | None:
    """Return how many bits a key column of this type needs in a word, or None if it may need more than 64."""
    if pa.types.is_boolean(key_type):
        return 1
    if pa.types.is_decimal(key_type):
        return 64 if key_type.precision <= _MAX_WORD_DECIMAL else None
    if pa.types.is_float32(key_type):
        return 64  # compared as a double
    if pa.types.is_primitive(key_type):
        return int(key_type.bit_width)
    return None


def uses_words(key_types: Sequence[pa.DataType], null_safe: Sequence[bool]) -> bool:
    """Return whether keys of these types fit the word layout."""
    total = 0
    for key_type, safe in zip(key_types, null_safe, strict=True):
        bits = word_bits(key_type)
        if bits is None:
            return False
        total += bits + safe
    return total <= 64


def key_ranges(columns: Sequence[pa.Array], null_safe: Sequence[bool]) -> KeyRanges | None:
    """Return the ranges by which the keys of a build side are packed, or None if keys are not packed by ranges.

    None is returned for a single column that is not null-safe, for columns without words, and if keys exceed 63 bits.
    """
    if (len(columns) == 1 and not null_safe[0]) or any(word_bits(column.type) is None for column in columns):
        return None
    ranges = [_find_column_range(column) for column in columns]
    packed = math.prod(_radix(bounds, safe) for bounds, safe in zip(ranges, null_safe, strict=True))
    return ranges if packed <= _PACKED_KEYS else None


def key_bounds(columns: Sequence[pa.Array], null_safe: Sequence[bool]) -> KeyBounds:
    """Return (smallest, largest) value of each key column of a build side: a probe value outside matches nothing.

    The pair is empty if all values are null, and None for null-safe columns and for columns of other types than
    integers, dates and timestamps.
    """
    bounds: list[Sequence[int] | None] = []
    for column, safe in zip(columns, null_safe, strict=True):
        counted = (
            pa.types.is_integer(column.type) or pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type)
        )
        if not counted or safe:
            bounds.append(None)
        else:
            bounds.append([] if column.null_count == len(column) else _find_column_range(column))
    return bounds


def _find_column_range(column: pa.Array) -> tuple[int, int]:
    """Return the smallest and the largest word of a column; (0, 0) if all are null, as any range is right then."""
    mask = unpack_validity(column)
    count, low, high = word_range(column_words(column), NO_MASK if mask is None else mask)
    return (int(low), int(high)) if count else (0, 0)


def _radix(bounds: tuple[int, int], null_safe: bool) -> int:
    """Return the number of a column's codes: one for each value of its range, and code 0 for null if null-safe."""
    low, high = bounds
    return high - low + 1 + null_safe


def normalise_keys(
    columns: Sequence[pa.Array], null_safe: Sequence[bool], ranges: KeyRanges | None = None
) -> NormalisedKeys:
    """Normalise key columns (equal lengths, already of the common type of both sides) to `NormalisedKeys`.

    Both sides of a join are normalised with the `ranges` of its build side.
    """
    if not columns:
        raise ValueError("a key needs at least one column")
    length = len(columns[0])
    if ranges is not None:
        return _pack_by_ranges(columns, null_safe, ranges)
    valid = _combine_validity(columns, null_safe)
    if uses_words([column.type for column in columns], null_safe):
        return NormalisedKeys(length, _to_words(columns, null_safe), None, valid)
    return NormalisedKeys(length, None, _to_rows(columns, null_safe), valid)


def _combine_validity(columns: Sequence[pa.Array], null_safe: Sequence[bool]) -> UInt8Array | None:
    combined: UInt8Array | None = None
    for column, safe in zip(columns, null_safe, strict=True):
        mask = None if safe else unpack_validity(column)
        if mask is not None:
            combined = mask if combined is None else combined & mask
    return None if combined is None else freeze(combined)


def column_words(column: pa.Array) -> Int64Array:
    """Return order-preserving words of one column, int64[n]; words of null rows are undefined."""
    key_type = column.type
    if pa.types.is_boolean(key_type):
        return freeze(unpack_bitmap(column, 1).astype(np.int64))
    if pa.types.is_floating(key_type):
        doubles = view_values(column.cast(pa.float64()) if not pa.types.is_float64(key_type) else column, np.float64)
        out = np.empty(len(column), dtype=np.int64)
        _order_doubles(doubles, out)
        return freeze(out)
    if pa.types.is_decimal(key_type):
        return freeze(decimal_halves(column)[:, 0].copy())
    width = key_type.bit_width // 8
    words = view_values(column, f"i{width}")
    if width == 8:
        return words
    widened = allocate_array(words.size, np.int64)
    widened[:] = words
    return freeze(widened)


def decimal_halves(column: pa.Array) -> Int64Array:
    """Return int64[n, 2]: low and high half of each 128-bit value."""
    buffer = column.buffers()[1]
    if len(column) == 0:
        return np.empty((0, 2), dtype=np.int64)
    halves = np.frombuffer(buffer, dtype=np.int64, count=2 * len(column), offset=16 * column.offset)
    return halves.reshape(-1, 2)


def _to_words(columns: Sequence[pa.Array], null_safe: Sequence[bool]) -> Int64Array:
    if len(columns) == 1 and not null_safe[0]:
        return column_words(columns[0])
    packed = np.zeros(len(columns[0]), dtype=np.int64)
    total = 0
    for column, safe in zip(columns, null_safe, strict=True):
        bits = word_bits(column.type)
        assert bits is not None
        mask = unpack_validity(column) if safe else None
        _pack(
            column_words(column),
            NO_MASK if mask is None else mask,
            bits,
            safe,
            _is_signed(column.type),
            packed,
        )
        total += bits + safe
    if total == 64:
        packed ^= _SIGN_BIT
    return freeze(packed)


def _pack_by_ranges(columns: Sequence[pa.Array], null_safe: Sequence[bool], ranges: KeyRanges) -> NormalisedKeys:
    length = len(columns[0])
    packed = np.zeros(length, dtype=np.int64)
    valid = np.ones(length, dtype=np.uint8)
    for column, safe, bounds in zip(columns, null_safe, ranges, strict=True):
        mask = unpack_validity(column)
        present = NO_MASK if mask is None else mask
        low, high = bounds
        _pack_codes(column_words(column), present, np.int64(low), np.int64(high), safe, packed, valid)
    return NormalisedKeys(length, freeze(packed), None, None if valid.all() else freeze(valid))


def _is_signed(key_type: pa.DataType) -> bool:
    return not pa.types.is_boolean(key_type)


def _to_rows(columns: Sequence[pa.Array], null_safe: Sequence[bool]) -> VarBytes:
    if len(columns) == 1 and not null_safe[0] and is_var(columns[0].type):
        return view_var_bytes(columns[0])
    return _concatenate(columns, null_safe)


def _concatenate(columns: Sequence[pa.Array], null_safe: Sequence[bool]) -> VarBytes:
    """Return a byte string per row: for each column a null flag if null-safe, then 8 or 16 bytes, or length and bytes.

    Values of a fixed width have 8 or 16 bytes; strings and binaries have a length.
    """
    length = len(columns[0])
    sizes = np.zeros(length, dtype=np.int64)
    for column, safe in zip(columns, null_safe, strict=True):
        fixed = 16 if pa.types.is_decimal(column.type) and word_bits(column.type) is None else 8
        sizes += fixed + safe
        if is_var(column.type):
            sizes += _var_sizes(column)
    offsets = np.zeros(length + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.zeros(int(offsets[-1]), dtype=np.uint8)
    cursor = offsets[:-1].copy()
    for column, safe in zip(columns, null_safe, strict=True):
        mask = unpack_validity(column)
        valid = NO_MASK if mask is None else mask
        if safe:
            _append_null_flags(valid, cursor, data)
        if is_var(column.type):
            var = view_var_bytes(column)
            _append_var(var.offsets, var.data, valid, cursor, data)
        elif word_bits(column.type) is None:
            halves = decimal_halves(column)
            _append_words(freeze(halves[:, 1].copy()), valid, cursor, data)
            _append_words(freeze(halves[:, 0].copy()), valid, cursor, data)
        else:
            _append_words(column_words(column), valid, cursor, data)
    return VarBytes(freeze(offsets), freeze(data))


def _var_sizes(column: pa.Array) -> Int64Array:
    """Return the bytes of each row of a string or binary column; 0 for a null, whatever its offsets span."""
    sizes: Int64Array = np.diff(view_var_bytes(column).offsets)
    mask = unpack_validity(column)
    return sizes if mask is None else sizes * mask


def cast_key(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast a key column to the common type of both sides: a lossless widening, or Spark's own int → double."""
    if column.type == target or is_var(target):
        return column  # keys ignore the offset width of strings, and 2 GiB of strings would not fit the narrow one
    return pc.cast(column, target, safe=not pa.types.is_floating(target))


@kernel
def _order_doubles(doubles: np.ndarray, out: Int64Array) -> None:
    """out[i] = double i as a signed integer of Spark's order: -0.0 = 0.0, NaN equals itself and is the largest."""
    bits = doubles.view(np.int64)
    for i in range(doubles.size):
        value = doubles[i]
        if value != value:
            out[i] = 0x7FF8000000000000
        elif value == 0.0:
            out[i] = 0
        else:
            b = bits[i]
            out[i] = b if b >= 0 else b ^ 0x7FFFFFFFFFFFFFFF


@kernel
def _pack(words: Int64Array, valid: UInt8Array, bits: int, null_safe: bool, signed: bool, packed: Int64Array) -> None:
    """Append one column to `packed` as its lowest bits: `bits` biased value bits, after a presence bit if null-safe."""
    all_valid = valid.size == 0
    for i in range(words.size):
        present = all_valid or valid[i] != 0
        value = np.uint64(words[i])
        if signed:
            value += np.uint64(1) << np.uint64(bits - 1)
        if bits < 64:
            value &= (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
        acc = np.uint64(packed[i])
        if null_safe:
            acc = (acc << np.uint64(1)) | np.uint64(present)
            if not present:
                value = np.uint64(0)
        if bits < 64:
            packed[i] = np.int64((acc << np.uint64(bits)) | value)
        else:
            packed[i] = np.int64(value)


@kernel
def _pack_codes(
    words: Int64Array,
    present: UInt8Array,
    low: np.int64,
    high: np.int64,
    null_safe: bool,
    packed: Int64Array,
    valid: UInt8Array,
) -> None:
    """Append one column as a digit of its radix. Clear `valid` if the word is outside [low, high].

    It is also cleared for nulls, unless the column is null-safe. Rows that are not valid have undefined `packed` words.
    """
    none_missing = present.size == 0
    values = np.uint64(high) - np.uint64(low) + np.uint64(1)
    radix = values + np.uint64(null_safe)
    for i in range(words.size):
        code = np.uint64(words[i]) - np.uint64(low)  # a word below the range wraps, and is above the range
        inside = code < values
        code += np.uint64(null_safe)
        if not none_missing and present[i] == 0:
            code = np.uint64(0)
            inside = null_safe
        packed[i] = np.int64(np.uint64(packed[i]) * radix + code)
        valid[i] &= np.uint8(inside)


@kernel
def word_range(words: Int64Array, valid: UInt8Array) -> tuple[int, int, int]:
    """Return the number of valid words, the smallest and the largest of them."""
    all_valid = valid.size == 0
    count = 0
    low = np.int64(0x7FFFFFFFFFFFFFFF)
    high = -low - 1
    for i in range(words.size):
        if all_valid or valid[i] != 0:
            count += 1
            low = min(low, words[i])
            high = max(high, words[i])
    return count, low, high


@kernel
def _append_null_flags(valid: UInt8Array, cursor: Int64Array, data: UInt8Array) -> None:
    all_valid = valid.size == 0
    for i in range(cursor.size):
        data[cursor[i]] = 1 if all_valid or valid[i] != 0 else 0
        cursor[i] += 1


@kernel
def _append_words(words: Int64Array, valid: UInt8Array, cursor: Int64Array, data: UInt8Array) -> None:
    """Append eight bytes a row, zeros for a null."""
    all_valid = valid.size == 0
    for i in range(words.size):
        word = np.uint64(words[i]) if all_valid or valid[i] != 0 else np.uint64(0)
        at = cursor[i]
        store_u64(data, at, word)
        cursor[i] = at + 8


@kernel
def _append_var(
    offsets: Int64Array, source: UInt8Array, valid: UInt8Array, cursor: Int64Array, data: UInt8Array
) -> None:
    """Append length (eight bytes) and bytes of each row; a null appends the length zero."""
    all_valid = valid.size == 0
    for i in range(cursor.size):
        present = all_valid or valid[i] != 0
        start = offsets[i]
        length = offsets[i + 1] - start if present else 0
        at = cursor[i]
        store_u64(data, at, np.uint64(length))
        copy_bytes(data, at + 8, source, start, length)
        cursor[i] = at + 8 + length
