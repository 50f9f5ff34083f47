"""Order-independent checksums of Arrow batches, to compare the results of engines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array, unpack_validity, view_values, view_var_bytes
from sparkext.kernels.keys.hashing import hash_rows, mix_word
from sparkext.kernels.runtime.jit import NO_MASK, kernel

_NULL = 0x5BD1E995


class Answer(NamedTuple):
    """The number of rows, and the sum and exclusive or of a 64-bit hash of every row over all columns.

    The sum detects duplicates, which cancel out in the exclusive or; the exclusive or depends on every bit.
    """

    rows: int
    hash_sum: int
    hash_xor: int


def answer_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Answer:
    """Compute the checksums of a result. Columns are matched by name and cast to the types of `schema`.

    Raises `ValueError` if the column names differ from those in `schema`.
    """
    rows = hash_sum = hash_xor = 0
    for batch in batches:
        if sorted(batch.schema.names) != sorted(schema.names):
            raise ValueError(f"expected the columns {schema.names}, got {batch.schema.names}")
        row_hash = np.zeros(batch.num_rows, dtype=np.int64)
        for field in schema:
            _fold(_normalised(batch.column(field.name), field.type), row_hash)
        rows += batch.num_rows
        hash_sum = (hash_sum + int(row_hash.view(np.uint64).sum(dtype=np.uint64))) & (2**64 - 1)
        hash_xor ^= int(np.bitwise_xor.reduce(row_hash.view(np.uint64)))
    return Answer(rows, hash_sum, hash_xor)


def _normalised(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return column if column.type == wanted else column.cast(wanted)


def _fold(column: pa.Array, row_hash: Int64Array) -> None:
    """Mix one column into the hash of every row."""
    mask = unpack_validity(column)
    for words in _words(column):
        _mix(words, NO_MASK if mask is None else mask, row_hash)


def _words(column: pa.Array) -> list[Int64Array]:
    """Return one or two int64 words per row: all bits of a value, or the hash of a string or binary value."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return [hash_rows(view_var_bytes(column))]
    if column.type.bit_width == 128:
        halves: Any = view_values(column, np.complex128).view(np.int64)
        return [np.ascontiguousarray(halves[::2]), np.ascontiguousarray(halves[1::2])]
    return [view_values(column, f"i{column.type.bit_width // 8}").astype(np.int64)]


@kernel
def _mix(words: Int64Array, valid: Any, row_hash: Int64Array) -> None:
    """row_hash[i] = mix(row_hash[i] * 31 + words[i]); a null counts as the constant `_NULL`."""
    all_valid = valid.size == 0
    for i in range(row_hash.size):
        word = words[i] if all_valid or valid[i] != 0 else np.int64(_NULL)
        row_hash[i] = np.int64(mix_word(row_hash[i] * np.int64(31) + word))
