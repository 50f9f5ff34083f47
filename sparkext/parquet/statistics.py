"""What the statistics of row groups say of values, and what a join asks of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from sparkext.plans.scan import ColumnBounds

UNKNOWN = ColumnBounds()
"""Of a column of which nothing is known."""


@dataclass(frozen=True)
class ProbeBounds:
    """What a join asks of a column: the smallest and the largest key of its build side, None if it has no key."""

    column: int
    keys: tuple[int, int] | None


def column_bounds(metadata: Any, group: int, leaf: int, target: pa.DataType) -> ColumnBounds:
    """Return what statistics say of a Parquet column of a row group, for values taken as `target`."""
    chunk = metadata.row_group(group).column(leaf)
    statistics = chunk.statistics
    if statistics is None:
        return UNKNOWN
    nulls = statistics.null_count if statistics.has_null_count else None
    convert = _bound_of(chunk.physical_type, metadata.schema.column(leaf), target)
    if convert is None or not statistics.has_min_max:
        return ColumnBounds(nulls=nulls)
    return ColumnBounds(convert(statistics.min_raw), convert(statistics.max_raw), nulls)


def _bound_of(physical: str, column: Any, target: pa.DataType) -> Callable[[Any], Any] | None:
    """Return how raw statistics become bounds, None where they say nothing about the values as `target`."""
    if physical in ("INT32", "INT64"):
        if pa.types.is_decimal(target):
            return lambda raw: Decimal(raw).scaleb(-target.scale)
        if pa.types.is_timestamp(target):
            per_unit = {"MICROS": 1, "MILLIS": 1000}
            unit = next((factor for name, factor in per_unit.items() if name in _unit(column)), None)
            return None if unit is None else lambda raw: raw * unit
        if pa.types.is_signed_integer(target) or pa.types.is_date32(target):
            return lambda raw: raw
    if physical == "BYTE_ARRAY" and pa.types.is_string(target):
        return lambda raw: raw if isinstance(raw, bytes) else raw.encode()
    return None


def _unit(column: Any) -> str:
    """Return what a column's logical type says of its time unit, in capitals."""
    text = str(column.logical_type).upper()
    return text.replace("MICROSECONDS", "MICROS").replace("MILLISECONDS", "MILLIS")
