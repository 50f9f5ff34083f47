"""Fields of dates, and dates moved by months, in the proleptic Gregorian calendar, for all int32 days.

Internally, years begin in March, so that a leap day is the last day of its year, and 400 years are an era of 146,097
days (Howard Hinnant, "chrono-compatible low-level date algorithms", 2013).
"""

from __future__ import annotations

import numpy as np

from sparkext.kernels.columns.buffers import Int32Array, Int64Array, allocate_array
from sparkext.kernels.runtime.jit import freeze, inlined, kernel

FIELDS = ("year", "quarter", "month", "day", "day_of_week", "weekday", "day_of_year", "week")
"""`day_of_week` is 1 on Sunday, `weekday` is 0 on Monday; all other fields begin with 1. A week begins on Monday, and
belongs to the year of its Thursday (ISO 8601)."""

KEPT, FIRST, LAST = 0, 1, 31
"""Values of `day` in `move_dates`."""

_YEAR, _QUARTER, _MONTH, _DAY, _DAY_OF_WEEK, _WEEKDAY, _DAY_OF_YEAR, _WEEK = range(len(FIELDS))
_DAYS_OF_ERA = 146_097
_EPOCH = 719_468  # days from March 1 of year 0 to January 1, 1970, which was a Thursday


def extract_date_field(field: str, days: Int32Array) -> Int32Array:
    """Return a field of dates, which are days since 1970: int32[n]."""
    out: Int32Array = allocate_array(days.size, np.int32)
    _extract_date_field(FIELDS.index(field), freeze(days), out)
    return out


@kernel
def _extract_date_field(field: int, days: Int32Array, out: Int32Array) -> None:
    """out[i] = field number `field` of days[i]."""
    for i in range(days.size):
        day = np.int64(days[i])
        if field == _DAY_OF_WEEK:
            out[i] = (day + 4) % 7 + 1
            continue
        if field == _WEEKDAY:
            out[i] = (day + 3) % 7
            continue
        if field == _WEEK:
            day += 3 - (day + 3) % 7
        since = day + _EPOCH
        era = since // _DAYS_OF_ERA
        day_of_era = since - era * _DAYS_OF_ERA
        year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
        day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
        march_month = (5 * day_of_year + 2) // 153
        is_next = march_month >= 10
        month = march_month - 9 if is_next else march_month + 3
        if field == _YEAR:
            out[i] = year_of_era + era * 400 + is_next
        elif field == _QUARTER:
            out[i] = (month + 2) // 3
        elif field == _MONTH:
            out[i] = month
        elif field == _DAY:
            out[i] = day_of_year - (153 * march_month + 2) // 5 + 1
        else:
            # Days since January 1; from March on, January and February are added.
            since_january = day_of_year - 305 if is_next else day_of_year + 60 + _is_leap(year_of_era)
            out[i] = (since_january + 6) // 7 if field == _WEEK else since_january


def move_dates(days: Int32Array, months: Int32Array, day: int) -> Int64Array:
    """Return days[i] moved by months[i] (maybe negative), int64[n].

    `day`: FIRST or LAST day of the resulting month; KEPT for the same day of the month, or the last day if the month
    is shorter.
    """
    out: Int64Array = allocate_array(days.size, np.int64)
    _move(freeze(days), freeze(months), day, out)
    return out


@kernel
def _move(days: Int32Array, months: Int32Array, wanted: int, out: Int64Array) -> None:
    """out[i] = days[i] moved by months[i], to day `wanted` (0: the same) of the month, or to its last day."""
    for i in range(days.size):
        since = np.int64(days[i]) + _EPOCH
        era = since // _DAYS_OF_ERA
        day_of_era = since - era * _DAYS_OF_ERA
        year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
        day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
        march_month = (5 * day_of_year + 2) // 153
        day = wanted if wanted > 0 else day_of_year - (153 * march_month + 2) // 5 + 1
        month = 12 * (year_of_era + 400 * era) + march_month + months[i]
        year, march_month = month // 12, month % 12
        before = (153 * march_month + 2) // 5
        length = 28 + _is_leap(year + 1) if march_month == 11 else (153 * march_month + 155) // 5 - before
        era = year // 400
        year_of_era = year - 400 * era
        day_of_era = 365 * year_of_era + year_of_era // 4 - year_of_era // 100 + before + min(day, length) - 1
        out[i] = era * _DAYS_OF_ERA + day_of_era - _EPOCH


@inlined
def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
