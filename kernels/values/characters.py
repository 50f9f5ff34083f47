"""Lengths and substrings of texts in characters, as Spark counts them: the first byte of a character gives its width.

    "zoë"    z     o     C3 AB        substring from 2, 2 characters:    o C3 AB
             1     1     2            length: 3

A byte that cannot begin a character counts as one, and a truncated character ends with its text.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import (
    Int32Array,
    Int64Array,
    UInt8Array,
    VarBytes,
    allocate_array,
    as_binary,
    view_var_bytes,
)
from sparkext.kernels.runtime.intrinsics import copy_bytes
from sparkext.kernels.runtime.jit import freeze, inlined, kernel


def count_characters(column: pa.Array) -> Int32Array:
    """Return the number of characters of each text, int32[n]; undefined for null rows."""
    texts = view_var_bytes(column)
    out: Int32Array = allocate_array(len(column), np.int32)
    _count(texts.offsets, texts.data, out)
    return out


def take_substrings(column: pa.Array, position: int, length: int) -> pa.Array:
    """Return a part of each text, as large binary values without nulls.

    Position 1, or 0, is the first character, -1 the last one. If a negative position is before the first character, the
    missing characters count towards `length`.
    """
    texts = view_var_bytes(column)
    starts: Int64Array = allocate_array(len(column), np.int64)
    offsets: Int64Array = allocate_array(len(column) + 1, np.int64)
    _cut(texts.offsets, texts.data, position, length, starts, offsets)
    data: UInt8Array = allocate_array(int(offsets[-1]), np.uint8)
    _copy(freeze(starts), freeze(offsets), texts.data, data)
    return as_binary(VarBytes(freeze(offsets), freeze(data)))


@inlined
def width_of(first: int) -> int:
    """Return the number of bytes of a character, given its first byte; 1 for a byte that cannot begin a character."""
    if first < 0xC2:
        return 1
    if first < 0xE0:
        return 2
    if first < 0xF0:
        return 3
    return 4 if first < 0xF5 else 1


@inlined
def _count_in_text(data: UInt8Array, start: int, end: int) -> int:
    count = 0
    while start < end:
        start += width_of(data[start])
        count += 1
    return count


@kernel
def _count(offsets: Int64Array, data: UInt8Array, out: Int32Array) -> None:
    """out[i] = number of characters of text i."""
    for i in range(out.size):
        out[i] = _count_in_text(data, offsets[i], offsets[i + 1])


@kernel
def _cut(
    offsets: Int64Array, data: UInt8Array, position: int, length: int, starts: Int64Array, cut: Int64Array
) -> None:
    """Write the start of each text's part in `data`, and the offsets of the parts in the output."""
    cut[0] = 0
    for i in range(starts.size):
        at, end = offsets[i], offsets[i + 1]
        first = max(position - 1, 0)
        if position < 0:
            first = _count_in_text(data, at, end) + position
        last = first + length
        number = 0
        while at < end and number < first:
            at += width_of(data[at])
            number += 1
        start = min(at, end)
        while at < end and number < last:
            at += width_of(data[at])
            number += 1
        starts[i] = start
        cut[i + 1] = cut[i] + min(at, end) - start


@kernel
def _copy(starts: Int64Array, offsets: Int64Array, data: UInt8Array, out: UInt8Array) -> None:
    """Copy the part of each text that begins at starts[i] to out[offsets[i]:offsets[i + 1]]."""
    for i in range(starts.size):
        length = offsets[i + 1] - offsets[i]
        if length > 0:
            copy_bytes(out, offsets[i], data, starts[i], length)
