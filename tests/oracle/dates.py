"""Spark's date functions, computed with numpy's calendar."""

from __future__ import annotations

import numpy as np

DAY = 86_400_000_000
"""Microseconds."""


def date_field(op: str, days: int) -> int:
    day = np.datetime64(days, "D")
    year, month = int(day.astype("M8[Y]").astype(int)) + 1970, int(day.astype("M8[M]").astype(int)) % 12 + 1
    if op == "week":
        # The ISO year is the year of the week's Thursday, whose number within the year gives the week.
        return (date_field("day_of_year", days - date_field("weekday", days) + 3) - 1) // 7 + 1
    return {
        "year": year,
        "quarter": (month + 2) // 3,
        "month": month,
        "day": days - int(day.astype("M8[M]").astype("M8[D]").astype(int)) + 1,
        "day_of_year": days - int(day.astype("M8[Y]").astype("M8[D]").astype(int)) + 1,
        # The first day of 1970 was a Thursday.
        "day_of_week": (days + 4) % 7 + 1,
        "weekday": (days + 3) % 7,
    }[op]


def date_function(op: str, value: int, *months: int) -> int:
    """Return a date in days, or a timestamp in microseconds, not yet wrapped to its type."""
    if op == "to_date":
        return value // DAY
    if op == "week_start":
        return week_start(value)
    month = np.datetime64(value, "D").astype("M8[M]").astype(int)
    if op.endswith("_start"):
        step = {"year": 12, "quarter": 3, "month": 1}[op.removesuffix("_start")]
        return first_of(month // step * step)
    if op == "last_day":
        return first_of(month + 1) - 1
    later = month + months[0]
    return min(first_of(later) + value - first_of(month), first_of(later + 1) - 1)


def first_of(month: int) -> int:
    return int(np.datetime64(int(month), "M").astype("M8[D]").astype(int))


def week_start(days: int) -> int:
    """Return the first day of a week with Spark's 32-bit arithmetic, which may wrap around."""
    before = wrapped(days - 7)
    rest = wrapped(3 - before)
    return before + 1 + (abs(rest) % 7 * (-1 if rest < 0 else 1) + 7) % 7


def wrapped(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
