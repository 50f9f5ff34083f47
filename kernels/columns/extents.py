"""The size in bytes of rows of any Arrow type, by arithmetic on offsets: no value is read, however long it is.

A range of list rows is a range of elements, which in turn is a range of bytes: two look-ups per level.

    lists     [a bcd] [] [ef g hij]      offsets   0   2   2   5
    strings   a  bcd  ef  g  hij         offsets   0  1  4  6  7  10      row 2: elements 2 to 5, bytes 4 to 10
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array, is_var, view_raw_var_bytes
from sparkext.kernels.columns.row_ids import RowIds
from sparkext.kernels.runtime.jit import AnyArray


def measure_rows(array: pa.Array, rows: RowIds, missing: bool) -> Int64Array:
    """Return int64[k]: the bytes of a copy of each of `rows` (RowIds[k]), without validity bits.

    Rows of -1, which `missing` allows, have no values; a null row counts the range that its offsets span.
    """
    start = rows.astype(np.int64)
    stop = start + 1
    if missing:
        start, stop = np.maximum(start, 0), np.maximum(stop, 0)
    return _measure_ranges(array, start, stop)


def _measure_ranges(array: pa.Array, start: Int64Array, stop: Int64Array) -> Int64Array:
    """Return int64[k]: the bytes of rows start[i] to before stop[i]."""
    kind, count = array.type, stop - start
    if pa.types.is_struct(kind):
        fields = (_measure_ranges(array.field(number), start, stop) for number in range(kind.num_fields))
        return sum(fields, np.zeros_like(count))
    if is_var(kind):
        offsets, _ = view_raw_var_bytes(array)
        return count * offsets.itemsize + offsets[stop] - offsets[start]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = _view_list_offsets(array)
        elements = _measure_ranges(array.values, offsets[start].astype(np.int64), offsets[stop].astype(np.int64))
        return count * offsets.itemsize + elements
    if pa.types.is_fixed_size_list(kind):
        first = array.offset
        return _measure_ranges(array.values, (first + start) * kind.list_size, (first + stop) * kind.list_size)
    width = fixed_bytes(kind)
    return count * (-(-array.nbytes // max(1, len(array))) if width is None else width)


def fixed_bytes(kind: pa.DataType) -> int | None:
    """Return the bytes of a row of this type, rounded up, or None if rows differ in size."""
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_struct(kind):
        widths = [fixed_bytes(kind.field(number).type) for number in range(kind.num_fields)]
        return None if None in widths else sum(width for width in widths if width is not None)
    if pa.types.is_fixed_size_list(kind):
        width = fixed_bytes(kind.value_type)
        return None if width is None else width * kind.list_size
    try:
        return -(-kind.bit_width // 8)
    except ValueError:
        return None


def _view_list_offsets(array: pa.Array) -> AnyArray:
    """View the offsets of a list or map array (n + 1)."""
    dtype = np.dtype(np.int64 if pa.types.is_large_list(array.type) else np.int32)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(1, dtype=dtype)
    return np.frombuffer(buffer, dtype=dtype, count=len(array) + 1, offset=array.offset * dtype.itemsize)
