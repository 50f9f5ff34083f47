"""How long the rows of a stream match and are stored: the argument `retain`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sparkext.spark.arrow import arrow_schema
from sparkext.streaming.join.event_times import resolve_event_times
from sparkext.streaming.state.stream_state import StoredSide

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"(\d+)\s*([a-z]+)")


def resolve_stored_sides(
    left: DataFrame, right: DataFrame, retain: Any, kind: str, tells_time: bool, problems: list[str]
) -> tuple[StoredSide, StoredSide] | None:
    """Return how the rows of both sides are stored, or None if `problems` got longer.

    `tells_time`: whether the result has an event-time column.
    """
    told = len(problems)
    retained = _resolve_retention(retain, problems)
    if kind != "inner" and retained[0] is None and len(problems) == told:
        problems.append(
            f"a {kind} join of streams requires retain, the time for which a row of the left side may find a match"
        )
    times = None
    if len(problems) == told and (tells_time or retained != (None, None)):
        times = resolve_event_times(left, right, "event_time" if retained == (None, None) else "retain", problems)
    if len(problems) > told:
        return None
    numbered = kind != "inner"
    return (
        StoredSide(arrow_schema(left.schema), None if times is None else times[0], retained[0], numbered),
        StoredSide(arrow_schema(right.schema), None if times is None else times[1], retained[1]),
    )


def _resolve_retention(retain: Any, problems: list[str]) -> tuple[int | None, int | None]:
    """Return the retention of each side in microseconds, None for ever."""
    given = retain if isinstance(retain, tuple) else (retain, retain)
    if len(given) != 2:
        problems.append(f"retain={retain!r}: expected a duration, or a tuple of two, for the left and the right side")
        return None, None
    left, right = (None if time is None else _parse_duration(time, problems) for time in given)
    return left, right


def _parse_duration(time: Any, problems: list[str]) -> int | None:
    text = time.lower().strip().removeprefix("interval") if isinstance(time, str) else ""
    parts = [(int(number), unit.removesuffix("s")) for number, unit in _PART.findall(text)]
    if not parts or _PART.sub("", text).strip() or not all(unit in _UNITS for _, unit in parts):
        problems.append(
            f"retain={time!r}: expected a duration such as '1 hour' or '90 seconds', in {', '.join(_UNITS)}s. Months"
            " and years have no fixed length. A number of rows is not supported, because streams have no order: `cql`"
            " has windows of rows, in the order of time"
        )
        return None
    return sum(number * _UNITS[unit] for number, unit in parts)
