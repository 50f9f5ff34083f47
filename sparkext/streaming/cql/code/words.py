"""Conversion of Arrow columns to words of an arena, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.arena.words import NAN
from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.groups.text_dictionary import TextDictionary
from sparkext.kernels.runtime.jit import freeze
from sparkext.plans.expressions.key_types import KeyType
from sparkext.rows.times import convert_to_microseconds
from sparkext.streaming.cql.language.queries import RelationColumn


def encode_column(column: pa.Array, kind: KeyType, texts: TextDictionary) -> Int64Array:
    """Return the words of a column as int64[n]; nulls are 0."""
    if kind.name == "string":
        codes = texts.codes(column)
        return freeze(np.where(np.asarray(column.is_null()), 0, codes)) if column.null_count else codes
    if kind.name in ("timestamp", "timestamp_ntz"):
        return freeze(np.where(np.asarray(column.is_null()), 0, convert_to_microseconds(column)))
    if kind.name == "date":
        column = column.cast(pa.int32())
    if column.null_count:
        column = pc.fill_null(column, False if kind.name == "bool" else 0)
    values = np.asarray(column) if kind.name != "bool" else np.asarray(column.cast(pa.int8()))
    if kind.name not in ("float32", "float64"):
        return freeze(values.astype(np.int64))
    words = values.astype(np.float64).view(np.int64)
    is_nan = values != values
    return freeze(np.where(is_nan, NAN, words) if is_nan.any() else words)


def pack_null_bits(columns: list[pa.Array], rows: int) -> Int64Array:
    """Return null bits as int64[rows]: bit k is set if column k is null."""
    bits = np.zeros(rows, dtype=np.int64)
    for bit, column in enumerate(columns):
        if column.null_count:
            bits |= np.asarray(column.is_null()).astype(np.int64) << bit
    return freeze(bits)


def decode_column(
    words: Int64Array, is_null: np.ndarray, column: RelationColumn, kind: pa.DataType, texts: TextDictionary
) -> pa.Array:
    """Return words as a column of an Arrow type."""
    name = column.type.name
    if name == "string":
        decoded = texts.texts(words, kind)
        return pc.if_else(pa.array(is_null), pa.scalar(None, kind), decoded) if is_null.any() else decoded
    if name in ("float32", "float64"):
        values = words.view(np.float64).astype(np.float32 if name == "float32" else np.float64)
        return pa.array(values, kind, mask=is_null)
    if name == "bool":
        return pa.array(words != 0, kind, mask=is_null)
    if name == "date":
        return pa.array(words.astype(np.int32), pa.int32(), mask=is_null).cast(kind)
    return pa.array(words, pa.int64(), mask=is_null).cast(kind)
