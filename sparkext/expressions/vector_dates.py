"""Functions of dates, months and timestamps, in Spark's calendar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkext.expressions.vectors import Mask, Vector, combine_known, intersect_masks, unite_masks
from sparkext.kernels.runtime.jit import AnyArray
from sparkext.kernels.values.calendar import FIRST, KEPT, LAST, extract_date_field, move_dates
from sparkext.plans.expressions.expression import Expression

_DAY = 86_400_000_000
"""Microseconds."""
_MOST_DAYS = (1 << 63) // _DAY
"""The largest number of days before or after 1970 that fits 64 bits in microseconds."""


def compute_date_field(node: Expression, operand: Vector) -> Vector:
    """Return a field of dates."""
    return Vector(_compute_field(node.op, operand.data), operand.known, operand.failed)


def compute_date(node: Expression, args: Sequence[Vector]) -> Vector:
    """Return dates or timestamps computed from others: `plans.expressions.expression.DATE_FUNCTIONS`."""
    known, failed = combine_known(args)
    days = args[0].data
    if node.op == "to_date":
        return Vector(np.floor_divide(days, _DAY).astype(np.int32), known, failed)
    if node.op == "to_timestamp":
        return _expand_to_microseconds(node, args[0])
    if node.op == "add_months":
        return _narrow_to_dates(node, _move_by_months(days, args[1].data, KEPT), known, failed)
    if node.op == "last_day":
        return _narrow_to_dates(node, _move_by_months(days, np.zeros((), np.int32), LAST), known, failed)
    if node.op == "week_start":
        return Vector(_find_monday(days), known, failed)
    months = {"year_start": 12, "quarter_start": 3, "month_start": 1}[node.op]
    months_since_start = (_compute_field("month", days) - 1) % months
    return _narrow_to_dates(node, _move_by_months(days, -months_since_start, FIRST), known, failed)


def _compute_field(field: str, days: AnyArray) -> AnyArray:
    return extract_date_field(field, days.reshape(-1)).reshape(days.shape)


def _find_monday(days: AnyArray) -> AnyArray:
    """Return the Monday of each date's week: the first Monday after the date minus 7 days, which may wrap around."""
    week_before = np.asarray(days - np.int32(7))
    return np.asarray(week_before + np.int32(1) + np.mod(np.int32(3) - week_before, np.int32(7)), dtype=np.int32)


def _move_by_months(days: AnyArray, months: AnyArray, day: int) -> AnyArray:
    shape = np.broadcast_shapes(days.shape, months.shape)
    day_numbers, month_counts = (
        np.ascontiguousarray(np.broadcast_to(part, shape)).reshape(-1) for part in (days, months)
    )
    return move_dates(day_numbers, month_counts, day).reshape(shape)


def _narrow_to_dates(node: Expression, days: AnyArray, known: Mask, failed: Mask) -> Vector:
    """Return 64-bit day numbers as dates, which have 32 bits."""
    wrapped = days.astype(np.int32)
    if node.checked:
        failed = unite_masks(failed, intersect_masks(np.asarray(wrapped != days), known))
    return Vector(wrapped, known, failed)


def _expand_to_microseconds(node: Expression, operand: Vector) -> Vector:
    """Return the first microsecond of dates. Timestamps are returned unchanged, since in UTC they equal local time."""
    if operand.data.dtype == np.int64:
        return operand
    data = operand.data.astype(np.int64) * _DAY
    failed = operand.failed
    if node.checked:
        beyond = np.asarray((operand.data > _MOST_DAYS) | (operand.data < -_MOST_DAYS))
        failed = unite_masks(failed, intersect_masks(beyond, operand.known))
    return Vector(data, operand.known, failed)
