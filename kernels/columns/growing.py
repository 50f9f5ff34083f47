"""Arrays that grow with the number of groups, their sizes, and their copies as Arrow arrays for output."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array
from sparkext.kernels.runtime.jit import AnyArray

_LEAST = 64


class HeldArrays:
    """An object whose attributes are arrays, or hold arrays."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(getattr(value, "nbytes", 0) for value in vars(self).values())


def grow_array(array: AnyArray, size: int, fill: int = 0) -> AnyArray:
    """Return `array`, or a copy of at least twice its length that holds `size` elements; new ones are `fill`."""
    if size <= array.size:
        return array
    capacity = max(size, 2 * array.size, _LEAST)
    larger = np.zeros(capacity, dtype=array.dtype)  # zeroed pages cost nothing until they are touched
    larger[: array.size] = array
    if fill:
        larger[array.size :] = fill
    return larger


def pack_validity(mask: UInt8Array | None) -> pa.Buffer | None:
    """Return the validity bitmap of uint8[n] (zero if null), or None if all are valid."""
    if mask is None or mask.all():
        return None
    return pa.py_buffer(np.packbits(mask.astype(bool), bitorder="little"))


def fixed_array(values: AnyArray, arrow_type: pa.DataType, mask: UInt8Array | None = None) -> pa.Array:
    """Return a copy of `values` as an Arrow array of a type of the same width, null if `mask` is zero."""
    return pa.Array.from_buffers(arrow_type, values.size, [pack_validity(mask), pa.py_buffer(values.copy())])


def bool_array(values: UInt8Array, mask: UInt8Array | None = None) -> pa.Array:
    """Return uint8[n] of zeros and ones as Arrow booleans, null if `mask` is zero."""
    bits = pa.py_buffer(np.packbits(values.astype(bool), bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), values.size, [pack_validity(mask), bits])


def decimal_array(low: Int64Array, high: Int64Array, arrow_type: pa.DataType, mask: UInt8Array | None) -> pa.Array:
    """Return decimals, given the two halves of their unscaled values; null if `mask` is zero."""
    halves = np.empty((low.size, 2), dtype=np.int64)
    halves[:, 0] = low
    halves[:, 1] = high
    return pa.Array.from_buffers(arrow_type, low.size, [pack_validity(mask), pa.py_buffer(halves)])
