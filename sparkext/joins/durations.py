"""Durations that users pass: text such as `10 minutes`, with or without `interval` in front, or a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeAlias

Duration: TypeAlias = str | timedelta

UNITS = {
    **dict.fromkeys(("microsecond", "microseconds", "us"), 1),
    **dict.fromkeys(("millisecond", "milliseconds", "ms"), 1_000),
    **dict.fromkeys(("second", "seconds", "s"), 1_000_000),
    **dict.fromkeys(("minute", "minutes", "min"), 60_000_000),
    **dict.fromkeys(("hour", "hours", "h"), 3_600_000_000),
    **dict.fromkeys(("day", "days", "d"), 86_400_000_000),
    **dict.fromkeys(("week", "weeks"), 604_800_000_000),
}
"""Microseconds per unit of time."""

_PART = r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)"
_TEXT = re.compile(rf"(?:interval\s)?(?:\s*{_PART})+")


def read_duration(argument: str, value: Any, problems: list[str], alternative: str = "") -> int | None:
    """Return a duration in microseconds, or None after adding to `problems`.

    `alternative` is another kind of value that the caller accepts for the argument, for the message.
    """
    duration = _parse_duration(value)
    if duration is None:
        problems.append(
            f"{argument}={value!r}: expected {alternative}a duration of at least 0, such as '10 minutes', '1 hour 30"
            " minutes' or a timedelta. Units are microseconds to weeks; months and years have no fixed length, so"
            " replace them by days"
        )
    return duration


def _parse_duration(value: Any) -> int | None:
    """Return the duration in microseconds, None if it is no duration, is negative, or has parts of microseconds."""
    if isinstance(value, timedelta):
        return None if value < timedelta(0) else value // timedelta(microseconds=1)
    text = value.lower().strip() if isinstance(value, str) else ""
    parts = re.findall(_PART, text)
    if not _TEXT.fullmatch(text) or not all(unit in UNITS for _, unit in parts):
        return None
    duration = sum(Decimal(number) * UNITS[unit] for number, unit in parts)
    return int(duration) if duration == int(duration) else None
