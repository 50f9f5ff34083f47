"""Placeholder rows without nulls, which Spark can also read in columns that are declared not null."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa


def make_blank_row(schema: pa.Schema) -> pa.RecordBatch:
    """Return one row of zeros, empty strings and empty lists."""
    arrays = [_make_blank_array(kind) for kind in schema.types]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _make_blank_array(kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        return pa.array([0], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    return pa.array([_choose_blank_value(kind)], kind)


def _choose_blank_value(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: _make_blank_array(field.type)[0].as_py() for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return []
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b""
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_decimal(kind):
        return Decimal(0)
    return None if pa.types.is_null(kind) else 0
