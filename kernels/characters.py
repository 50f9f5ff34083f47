"""Texts by their characters, as Spark counts them: a first byte tells how many bytes a character has.

    "zoë"    z     o     C3 AB        substring from 2, 2 characters:    o C3 AB
             1     1     2            length: 3

Bytes that cannot be first stand for a character of their own, and a character that is cut off ends with its text.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkext.kernels.buffers import Int64Array, UInt8Array, VarBytes, allocate, as_binary, var_bytes
from sparkext.kernels.intrinsics import copy_bytes
from sparkext.kernels.jit import frozen, inlined, kernel

Int32Array = npt.NDArray[np.int32]


def lengths(column: pa.Array) -> Int32Array:
    """Return how many characters the texts have, int32[n]; null rows get what lies there."""
    texts = var_bytes(column)
    out: Int32Array = allocate(len(column), np.int32)
    _count(texts.offsets, texts.data, out)
    return out


def substrings(column: pa.Array, position: int, length: int) -> pa.Array:
    """Return a part of each text, as large binary values without nulls.

    Position 1, or 0, is the first character, -1 the last one; characters before the first count as well.
    """
    texts = var_bytes(column)
    starts: Int64Array = allocate(len(column), np.int64)
    offsets: Int64Array = allocate(len(column) + 1, np.int64)
    _cut(texts.offsets, texts.data, position, length, starts, offsets)
    data: UInt8Array = allocate(int(offsets[-1]), np.uint8)
    _copy(frozen(starts), frozen(offsets), texts.data, data)
    return as_binary(VarBytes(frozen(offsets), frozen(data)))


@inlined
def width_of(first: int) -> int:
    """Return how many bytes a character has that begins with this one; 1 for a byte that begins none."""
    if first < 0xC2:
        return 1
    if first < 0xE0:
        return 2
    if first < 0xF0:
        return 3
    return 4 if first < 0xF5 else 1


@inlined
def _characters(data: UInt8Array, start: int, end: int) -> int:
    count = 0
    while start < end:
        start += width_of(data[start])
        count += 1
    return count


@kernel
def _count(offsets: Int64Array, data: UInt8Array, out: Int32Array) -> None:
    """out[i] = characters of text i."""
    for i in range(out.size):
        out[i] = _characters(data, offsets[i], offsets[i + 1])


@kernel
def _cut(
    offsets: Int64Array, data: UInt8Array, position: int, length: int, starts: Int64Array, cut: Int64Array
) -> None:
    """Write where in `data` the part of each text starts, and the offsets of the parts."""
    cut[0] = 0
    for i in range(starts.size):
        at, end = offsets[i], offsets[i + 1]
        first = max(position - 1, 0)
        if position < 0:
            first = _characters(data, at, end) + position
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
