"""Arrow arrays as numpy views and back, without a copy if Arrow's layout allows it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkext.kernels.runtime.jit import AnyArray, freeze, kernel

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
UInt8Array = npt.NDArray[np.uint8]
DoubleArray = npt.NDArray[np.float64]


class VarBytes(NamedTuple):
    """Variable-length rows: row `i` is `data[offsets[i]:offsets[i + 1]]` (offsets int64[n + 1], data uint8)."""

    offsets: Int64Array
    data: UInt8Array


def fixed_width_dtype(arrow_type: pa.DataType) -> np.dtype[Any] | None:
    """Return the unsigned numpy dtype of the same width as a fixed-width Arrow type, or None for other types.

    Booleans are bit-packed and therefore not fixed-width here, and decimals are wider than a machine word. Arrow
    gathers both as fast as a kernel does.
    """
    if pa.types.is_boolean(arrow_type) or not pa.types.is_primitive(arrow_type):
        return None
    code = {8: "u1", 16: "u2", 32: "u4", 64: "u8"}.get(arrow_type.bit_width)
    return None if code is None else np.dtype(code)


def view_values(array: pa.Array, dtype: npt.DTypeLike) -> AnyArray:
    """View the value buffer of a fixed-width Arrow array as read-only `dtype[n]`; values of nulls are undefined."""
    value_dtype = np.dtype(dtype)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return freeze(np.empty(0, dtype=value_dtype))
    return freeze(
        np.frombuffer(buffer, dtype=value_dtype, count=len(array), offset=array.offset * value_dtype.itemsize)
    )


def unpack_bitmap(array: pa.Array, buffer_index: int) -> UInt8Array:
    """Unpack one bitmap of an Arrow array (0: validity, 1: boolean values) to uint8[n] of zeros and ones."""
    buffer = array.buffers()[buffer_index]
    out = np.empty(len(array), dtype=np.uint8)
    if buffer is None:
        out.fill(1)
    else:
        _unpack_bits(freeze(np.frombuffer(buffer, dtype=np.uint8)), array.offset, out)
    return freeze(out)


def unpack_validity(array: pa.Array) -> UInt8Array | None:
    """Return uint8[n], 1 if the row is not null, else 0; None if no row is null."""
    if array.null_count == 0:
        return None
    if pa.types.is_null(array.type):
        return freeze(np.zeros(len(array), dtype=np.uint8))
    return unpack_bitmap(array, 0)


def is_var(arrow_type: pa.DataType) -> bool:
    """Return whether `arrow_type` is a (large) string or binary, the types that `view_var_bytes` views."""
    return bool(
        pa.types.is_string(arrow_type)
        or pa.types.is_large_string(arrow_type)
        or pa.types.is_binary(arrow_type)
        or pa.types.is_large_binary(arrow_type)
    )


def view_var_bytes(array: pa.Array) -> VarBytes:
    """View a (large) string or binary array as offsets and bytes; null rows may have any extent.

    32-bit offsets are widened, which is the only copy.
    """
    offsets, data = view_raw_var_bytes(array)
    return VarBytes(freeze(offsets.astype(np.int64, copy=False)), data)


def as_binary(source: VarBytes) -> pa.Array:
    """Return the byte strings as an Arrow array, without a copy; the inverse of `view_var_bytes`."""
    buffers = [None, pa.py_buffer(source.offsets), pa.py_buffer(source.data)]
    return pa.Array.from_buffers(pa.large_binary(), source.offsets.size - 1, buffers)


def view_raw_var_bytes(array: pa.Array) -> tuple[AnyArray, UInt8Array]:
    """View a (large) string or binary array as offsets (int32 or int64, n + 1) and bytes, without a copy."""
    _, offsets_buffer, data_buffer = array.buffers()
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.dtype(np.int64 if large else np.int32)
    if offsets_buffer is None or len(array) == 0:
        offsets = np.zeros(1, dtype=dtype)
    else:
        offsets = np.frombuffer(offsets_buffer, dtype=dtype, count=len(array) + 1, offset=array.offset * dtype.itemsize)
    data = np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, dtype=np.uint8)
    return freeze(offsets), freeze(data)


def allocate_array(count: int, dtype: npt.DTypeLike) -> AnyArray:
    """Return an uninitialised writable array whose memory comes from Arrow's pool.

    The pool retains freed pages. numpy's allocator returns large blocks to the system, which costs page faults for
    every output batch.
    """
    value_dtype = np.dtype(dtype)
    buffer = pa.allocate_buffer(count * value_dtype.itemsize)
    return np.frombuffer(buffer, dtype=value_dtype, count=count) if count else np.empty(0, dtype=value_dtype)


@kernel
def _unpack_bits(bitmap: UInt8Array, first_bit: int, out: UInt8Array) -> None:
    """out[i] = bit `first_bit + i` of the little-endian bitmap."""
    for i in range(out.size):
        bit = first_bit + i
        out[i] = (bitmap[bit >> 3] >> (bit & 7)) & 1
