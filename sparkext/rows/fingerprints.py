"""Hashes over all columns of a row, to distinguish rows with different contents.

Equal rows have equal hashes, so the sum of the hashes of a set of rows does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array, UInt64Array, is_var, unpack_validity
from sparkext.kernels.keys.hashing import hash_words
from sparkext.kernels.keys.normalised import normalise_keys, word_bits
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.partition import hash_keys

_MOST_WORD_BITS = 64
_NULL = np.uint64(0x9E3779B97F4A7C15)


def hash_row_contents(columns: Sequence[pa.Array], rows: int) -> Int64Array:
    """Return int64[rows]: a hash of each row. Values of types that Spark does not have are ignored."""
    flat = [_view_bits(column) for column in columns if _is_flat(column.type)]
    hashes = hash_keys(normalise_keys(flat, (True,) * len(flat))) if flat else np.zeros(rows, dtype=np.int64)
    mixed = hashes.view(np.uint64)
    for column in columns:
        if pa.types.is_nested(column.type):
            mixed = _mix_hashes(_mix_hashes(mixed) + _hash_nested(column))
    return freeze(mixed.view(np.int64))


def _view_bits(column: pa.Array) -> pa.Array:
    """Return a column whose equality distinguishes all values: floats as bits, since as keys 0.0 equals -0.0."""
    if not pa.types.is_floating(column.type):
        return column
    return column.view(pa.int32() if pa.types.is_float32(column.type) else pa.int64())


def _is_flat(column_type: pa.DataType) -> bool:
    bits = word_bits(column_type)
    return is_var(column_type) or pa.types.is_decimal(column_type) or (bits is not None and bits <= _MOST_WORD_BITS)


def _hash_nested(column: pa.Array) -> UInt64Array:
    """Return the hash of each value: of the fields of a struct, or of the elements of a list and their positions."""
    if pa.types.is_struct(column.type):
        hashes = _mix_hashes(hash_row_contents(column.flatten(), len(column)).view(np.uint64))
    elif pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_map(column.type):
        hashes = _hash_elements(column)
    else:
        return np.zeros(len(column), dtype=np.uint64)
    mask = unpack_validity(column)
    return hashes if mask is None else np.where(mask == 0, _NULL, hashes)


def _hash_elements(column: pa.Array) -> UInt64Array:
    offsets = np.asarray(column.offsets, dtype=np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    parts = [column.keys, column.items] if pa.types.is_map(column.type) else [column.values]
    hashes = hash_row_contents([part.slice(first, last - first) for part in parts], last - first).view(np.uint64)
    lengths = np.diff(offsets)
    positions = np.arange(last - first, dtype=np.int64) - np.repeat(offsets[:-1] - first, lengths)
    sums = np.zeros(last - first + 1, dtype=np.uint64)
    np.cumsum(_mix_hashes(hashes + positions.astype(np.uint64)), out=sums[1:])
    return _mix_hashes(sums[offsets[1:] - first] - sums[offsets[:-1] - first] + lengths.astype(np.uint64))


def _mix_hashes(hashes: UInt64Array) -> UInt64Array:
    return hash_words(freeze(np.ascontiguousarray(hashes).view(np.int64))).view(np.uint64)
