"""Fields of dates, and month arithmetic, against numpy's calendar."""

from __future__ import annotations

import numpy as np
import pytest

from sparkext.kernels.values.calendar import FIELDS, FIRST, KEPT, LAST, extract_date_field, move_dates
from tests.oracle.dates import date_field as told
from tests.oracle.dates import date_function

ENDS_OF_YEARS = [
    day + step
    for year in (1600, 1900, 1999, 2000, 2023, 2024)
    for day in (
        int(np.datetime64(f"{year}-03-01", "D").astype(int)),
        int(np.datetime64(f"{year}-01-01", "D").astype(int)),
    )
    for step in (-1, 0, 1)
]
LIMITS = [-(2**31), -(2**31) + 1, 2**31 - 1, -719_529, -719_528, -719_468, -1, 0, 1]


@pytest.mark.parametrize("field", FIELDS)
def test_fields(field: str) -> None:
    days = [*ENDS_OF_YEARS, *LIMITS, *np.random.default_rng(3).integers(-(2**31), 2**31, 200).tolist()]
    assert extract_date_field(field, np.array(days, np.int32)).tolist() == [told(field, day) for day in days]


@pytest.mark.parametrize("field", FIELDS)
def test_every_day_of_an_era(field: str) -> None:
    """An empty array, and 400 years for which Python has a calendar as well."""
    assert extract_date_field(field, np.empty(0, np.int32)).tolist() == []
    first = int(np.datetime64("1823-05-17", "D").astype(int))
    days = np.arange(first, first + 146_097, 97, dtype=np.int32)
    assert extract_date_field(field, days).tolist() == [told(field, day) for day in days.tolist()]


@pytest.mark.parametrize(("day", "op"), [(KEPT, "add_months"), (FIRST, "month_start"), (LAST, "last_day")])
def test_months_later(day: int, op: str) -> None:
    """No date overflows: day numbers are 64-bit."""
    generator = np.random.default_rng(5)
    days = np.array([*ENDS_OF_YEARS, *LIMITS, *generator.integers(-(2**31), 2**31, 500)], np.int32)
    months = generator.choice([0, 1, -1, 2, 11, 12, -13, 1200, 2**31 - 1, -(2**31)], days.size).astype(np.int32)
    later = [date_function("add_months", *pair) for pair in zip(days.tolist(), months.tolist(), strict=True)]
    expected = later if op == "add_months" else [date_function(op, each) for each in later]
    assert move_dates(days, months, day).tolist() == expected
