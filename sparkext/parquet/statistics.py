"""Bounds of values from the statistics of row groups, and bounds of keys that a join requires."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from sparkext.plans.pipeline.scan import ColumnBounds

UNKNOWN = ColumnBounds()
"""The bounds of a column without statistics."""


@dataclass(frozen=True)
class ProbeBounds:
    """A probe column, and the smallest and the largest build key that a join compares it with; None without keys."""

    column: int
    keys: tuple[int, int] | None


def read_column_bounds(metadata: Any, group: int, leaf: int, target: pa.DataType) -> ColumnBounds:
    """Return the bounds of a Parquet column in a row group from its statistics, for values read as `target`."""
    chunk = metadata.row_group(group).column(leaf)
    statistics = chunk.statistics
    if statistics is None:
        return UNKNOWN
    nulls = statistics.null_count if statistics.has_null_count else None
    convert = _choose_bound_conversion(chunk.physical_type, metadata.schema.column(leaf), target)
    if convert is None or not statistics.has_min_max:
        return ColumnBounds(nulls=nulls)
    return ColumnBounds(convert(statistics.min_raw), convert(statistics.max_raw), nulls)


def _choose_bound_conversion(physical: str, column: Any, target: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the conversion of raw statistics to bounds, None if they do not bound the values read as `target`."""
    if physical in ("INT32", "INT64"):
        if pa.types.is_decimal(target):
            return lambda raw: Decimal(raw).scaleb(-target.scale)
        if pa.types.is_timestamp(target):
            per_unit = {"MICROS": 1, "MILLIS": 1000}
            unit = next((factor for name, factor in per_unit.items() if name in _abbreviate_unit(column)), None)
            return None if unit is None else lambda raw: raw * unit
        if pa.types.is_signed_integer(target) or pa.types.is_date32(target):
            return lambda raw: raw
    if physical == "BYTE_ARRAY" and pa.types.is_string(target):
        return lambda raw: raw if isinstance(raw, bytes) else raw.encode()
    return None


def _abbreviate_unit(column: Any) -> str:
    """Return a column's logical type in capitals, with short names of time units."""
    text = str(column.logical_type).upper()
    return text.replace("MICROSECONDS", "MICROS").replace("MILLISECONDS", "MILLIS")
