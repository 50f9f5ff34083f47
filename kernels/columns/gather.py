"""Payload gather: the last step of a pipeline, which fetches the columns of the rows that passed all joins.

Fixed-width and string columns are gathered by kernels, everything else (booleans, decimals, nested types) by Arrow's
`take`. A row id of -1 means "no row" (an outer join's missing side) and becomes a null.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import (
    Int64Array,
    UInt8Array,
    allocate_array,
    fixed_width_dtype,
    is_var,
    view_raw_var_bytes,
    view_values,
)
from sparkext.kernels.columns.extents import fixed_bytes, measure_rows
from sparkext.kernels.columns.row_ids import RowIds
from sparkext.kernels.runtime.intrinsics import copy_bytes, load_u64, prefetch, store_u64
from sparkext.kernels.runtime.jit import AnyArray, freeze, inlined, kernel

MAX_VAR_BYTES = 2**31 - 1
"""Most bytes of a string or binary column of one batch: Arrow's 32-bit offsets end here."""


_SHORT = 64
_SLACK = 64  # bytes that copying in whole words may write past the end
_AHEAD = 16
_RUN = 4
_ONE_PASS_BYTES = 8 << 20  # up to here, memory is sized by the longest string, which saves a pass over the lengths


class VarBytesOverflowError(Exception):
    """The gathered rows hold more string bytes than one batch can: gather fewer rows at a time."""


@dataclass(frozen=True)
class Column:
    """One column of a morsel or of a build side, prepared for repeated gathers.

    `bits` is the validity bitmap (uint8, bit `first_bit` belongs to row 0), or None if no row is null. `longest` is the
    length of the longest string in bytes.
    """

    array: pa.Array
    values: AnyArray | None
    offsets: AnyArray | None
    bits: UInt8Array | None
    first_bit: int
    longest: int = 0

    @classmethod
    def of(cls, array: pa.Array) -> Column:
        """Prepare an Arrow array. Copies nothing."""
        bits = None
        if array.null_count and array.buffers()[0] is not None:
            bits = freeze(np.frombuffer(array.buffers()[0], dtype=np.uint8))
        dtype = fixed_width_dtype(array.type)
        if dtype is not None:
            return cls(array, view_values(array, dtype), None, bits, array.offset)
        if is_var(array.type):
            offsets, data = view_raw_var_bytes(array)
            return cls(array, data, offsets, bits, array.offset, _find_longest(offsets))
        return cls(array, None, None, bits, array.offset)

    @property
    def value_bytes(self) -> float:
        """Average bytes per row: the initial estimate of a row's size."""
        return float(self.array.nbytes / len(self.array)) if len(self.array) else 0.0

    @property
    def most_row_bytes(self) -> float:
        """Most bytes of a gathered row; infinite if rows of a nested column differ in size."""
        if self.values is None:
            width = fixed_bytes(self.array.type)
            return math.inf if width is None else width
        return float(self.values.itemsize if self.offsets is None else self.longest + self.offsets.itemsize)

    @property
    def fits_batch(self) -> bool:
        """Whether the whole column fits one batch, in which strings have 32-bit offsets."""
        return self.offsets is None or int(self.offsets[-1]) - int(self.offsets[0]) <= MAX_VAR_BYTES

    def add_sizes(self, rows: RowIds, missing: bool, sizes: Int64Array) -> None:
        """Add to `sizes` (int64[k]) the bytes of each of `rows` (RowIds[k]) after it is gathered."""
        if self.values is None:
            sizes += measure_rows(self.array, rows, missing)
        elif self.offsets is None:
            sizes += self.values.itemsize
        else:
            _add_lengths(self.offsets, rows, missing, sizes)

    def take(self, rows: RowIds | None, missing: bool) -> pa.Array:
        """Return the column at `rows` (RowIds[k]; None for all rows), with nulls for -1, which `missing` allows.

        Gathered large strings have 32-bit offsets, the type that Spark declares. Without `rows`, the column is returned
        unchanged.

        Raises
        ------
        VarBytesOverflowError
            The strings of these rows exceed `MAX_VAR_BYTES`.
        """
        if rows is None:
            return self.array
        if self.values is None:
            return self._take_by_arrow(rows, missing)
        validity, nulls = self._take_validity(rows, missing)
        if self.offsets is None:
            out = allocate_array(rows.size, self.values.dtype)
            _gather_fixed(self.values, rows, missing, out)
            return pa.Array.from_buffers(self.array.type, rows.size, [validity, pa.py_buffer(out)], null_count=nulls)
        bound = rows.size * self.longest
        if bound > _ONE_PASS_BYTES:
            bound = _sum_lengths(self.offsets, rows, missing)
        if bound > MAX_VAR_BYTES:
            raise VarBytesOverflowError
        offsets = allocate_array(rows.size + 1, np.int32)
        data = allocate_array(bound + _SLACK, np.uint8)
        total = _gather_bytes(self.offsets, self.values, rows, missing, offsets, data)
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data[:total])]
        return pa.Array.from_buffers(_narrow(self.array.type), rows.size, buffers, null_count=nulls)

    def _take_validity(self, rows: RowIds, missing: bool) -> tuple[pa.Buffer | None, int]:
        if self.bits is None and not missing:
            return None, 0
        bitmap = allocate_array((rows.size + 7) // 8, np.uint8)
        bitmap[:] = 0
        bits = np.empty(0, dtype=np.uint8) if self.bits is None else self.bits
        nulls = _gather_validity(freeze(bits), self.first_bit, rows, bitmap)
        return pa.py_buffer(bitmap), nulls

    def _take_by_arrow(self, rows: RowIds, missing: bool) -> pa.Array:
        indices = pa.array(rows, mask=rows < 0) if missing else pa.array(rows)
        return self.array.take(indices)


def gather_values(values: AnyArray, rows: RowIds) -> AnyArray:
    """Return values[rows]; values are unsigned integers of any width."""
    out = allocate_array(rows.size, values.dtype)
    _gather_fixed(freeze(values), rows, False, out)
    return out


def _narrow(arrow_type: pa.DataType) -> Any:
    if pa.types.is_large_string(arrow_type):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(arrow_type) else arrow_type


@kernel
def compose(outer: RowIds, inner: RowIds, out: RowIds) -> None:
    """out[i] = outer[inner[i]]: row ids of an earlier join, for the output rows of a later one."""
    for i in range(inner.size):
        out[i] = outer[inner[i]]


@kernel
def _find_longest(offsets: AnyArray) -> int:
    """Return the length of the longest string in bytes."""
    longest = np.int64(0)
    for i in range(offsets.size - 1):
        longest = max(longest, np.int64(offsets[i + 1]) - np.int64(offsets[i]))
    return longest


@kernel
def _gather_fixed(values: AnyArray, rows: RowIds, missing: bool, out: AnyArray) -> None:
    """out[i] = values[rows[i]]; 0 for a missing row. Unsigned indices save numba's handling of negative ones."""
    if not missing:
        for i in range(rows.size):
            out[i] = values[np.uint64(rows[i])]
    else:
        for i in range(rows.size):
            row = rows[i]
            if row >= 0:
                out[i] = values[np.uint64(row)]
            else:
                out[i] = 0


@kernel
def _gather_validity(bits: UInt8Array, first_bit: int, rows: RowIds, bitmap: UInt8Array) -> int:
    """Set bit i of the zeroed `bitmap` if rows[i] is a row and not null; return the number of nulls.

    Without `bits`, no row is null.
    """
    no_nulls = bits.size == 0
    nulls = 0
    for i in range(rows.size):
        row = rows[i]
        valid = row >= 0
        if valid and not no_nulls:
            bit = first_bit + row
            valid = (bits[bit >> 3] >> (bit & 7)) & 1 != 0
        if valid:
            bitmap[i >> 3] |= np.uint8(1 << (i & 7))
        else:
            nulls += 1
    return nulls


@kernel
def _sum_lengths(offsets: AnyArray, rows: RowIds, missing: bool) -> int:
    """Return the total bytes of the strings of these rows."""
    total = np.int64(0)
    for i in range(rows.size):
        row = rows[i]
        if not missing or row >= 0:
            total += np.int64(offsets[row + 1]) - np.int64(offsets[row])
    return total


@kernel
def _add_lengths(offsets: AnyArray, rows: RowIds, missing: bool, sizes: Int64Array) -> None:
    """sizes[i] += bytes of string rows[i] and of its offset."""
    for i in range(rows.size):
        row = rows[i]
        sizes[i] += 4
        if not missing or row >= 0:
            sizes[i] += np.int64(offsets[row + 1]) - np.int64(offsets[row])


@inlined
def _count_consecutive(rows: RowIds, i: int) -> int:
    """Return how many rows from `i` on are consecutive in the source."""
    end = i + 1
    while end < rows.size and rows[end] - rows[i] == end - i:
        end += 1
    return end - i


@kernel
def _gather_bytes(
    offsets: AnyArray, data: UInt8Array, rows: RowIds, missing: bool, out_offsets: AnyArray, out: UInt8Array
) -> int:
    """Copy the string of each row, write the offsets (int32[k + 1]), return the total; `out` has `_SLACK` to spare.

    `_RUN` or more consecutive rows are copied as one piece. A short piece is copied in pairs of words, if all words to
    read are within `data`. The copy may write past the end of the piece; the next piece overwrites these bytes.
    Offsets and bytes of later rows are prefetched. Measured against Arrow's `take`, 131,072 random rows: 18-byte names
    of 30,000 rows 13 → 5 to 10 ns a row, comments of 2 M rows 73 → 46.
    """
    at = np.int64(0)
    out_offsets[0] = 0
    n = rows.size
    last_word_pair = data.size - 16
    last_line = data.size - _SHORT
    i = 0
    while i < n:
        if i + 2 * _AHEAD < n:
            row = rows[i + 2 * _AHEAD]
            if not missing or row >= 0:
                prefetch(offsets, row)
        if i + _AHEAD < n:
            row = rows[i + _AHEAD]
            if not missing or row >= 0:
                prefetch(data, offsets[row])
        row = rows[i]
        run = 1
        if not missing or row >= 0:
            start = np.int64(offsets[row])
            if i + _RUN <= n and rows[i + _RUN - 1] - row == _RUN - 1:
                run = _count_consecutive(rows, i)
            length = np.int64(offsets[row + run]) - start
            if length <= 16 and start <= last_word_pair:
                store_u64(out, at, load_u64(data, start))
                store_u64(out, at + 8, load_u64(data, start + 8))
            elif length <= _SHORT and start <= last_line:
                for word in range(0, length, 16):
                    store_u64(out, at + word, load_u64(data, start + word))
                    store_u64(out, at + word + 8, load_u64(data, start + word + 8))
            else:
                copy_bytes(out, at, data, start, length)
            for j in range(1, run):
                out_offsets[i + j] = at + np.int64(offsets[row + j]) - start
            at += length
        i += run
        out_offsets[i] = at
    return at
