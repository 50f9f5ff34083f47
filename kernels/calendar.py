"""Fields of dates in the proleptic Gregorian calendar, for any day that 32 bits can count.

Years begin in March, so that the day that leap years add is their last one, and 400 years are an era of 146,097 days
(Howard Hinnant, "chrono-compatible low-level date algorithms", 2013).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparkext.kernels.buffers import allocate
from sparkext.kernels.jit import frozen, kernel

Int32Array = npt.NDArray[np.int32]

FIELDS = ("year", "quarter", "month", "day", "day_of_week", "weekday", "day_of_year")
"""Days of the week begin with 1 on Sunday, but `weekday` with 0 on Monday; all others begin with 1."""

_YEAR, _QUARTER, _MONTH, _DAY, _DAY_OF_WEEK, _WEEKDAY, _DAY_OF_YEAR = range(len(FIELDS))
_DAYS_OF_ERA = 146_097
_EPOCH = 719_468  # days from March 1 of year 0 to January 1, 1970, which was a Thursday


def date_field(field: str, days: Int32Array) -> Int32Array:
    """Return a field of dates, which are days since 1970: int32[n]."""
    out: Int32Array = allocate(days.size, np.int32)
    _date_field(FIELDS.index(field), frozen(days), out)
    return out


@kernel
def _date_field(field: int, days: Int32Array, out: Int32Array) -> None:
    """out[i] = field number `field` of days[i]."""
    for i in range(days.size):
        day = np.int64(days[i])
        if field == _DAY_OF_WEEK:
            out[i] = (day + 4) % 7 + 1
            continue
        if field == _WEEKDAY:
            out[i] = (day + 3) % 7
            continue
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
        elif is_next:
            out[i] = day_of_year - 305
        else:
            is_leap = year_of_era % 4 == 0 and (year_of_era % 100 != 0 or year_of_era == 0)
            out[i] = day_of_year + 60 + is_leap
