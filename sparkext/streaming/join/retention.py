"""The argument `retain`: the time for which rows of a stream match and are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkext.joins.durations import read_duration
from sparkext.spark.arrow import arrow_schema
from sparkext.streaming.join.event_times import resolve_event_times
from sparkext.streaming.state.stream_state import StoredSide

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def resolve_stored_sides(
    left: DataFrame, right: DataFrame, retain: Any, kind: str, has_time_column: bool, problems: list[str]
) -> tuple[StoredSide, StoredSide] | None:
    """Return the stored form of both sides, or None if `problems` got longer.

    `has_time_column`: whether the result has an event-time column.
    """
    before = len(problems)
    retained = _resolve_retention(retain, problems)
    if kind != "inner" and retained[0] is None and len(problems) == before:
        problems.append(
            f"a {kind} join of streams requires retain, the time for which a row of the left side may find a match"
        )
    times = None
    if len(problems) == before and (has_time_column or retained != (None, None)):
        times = resolve_event_times(left, right, "event_time" if retained == (None, None) else "retain", problems)
    if len(problems) > before:
        return None
    numbered = kind != "inner"
    return (
        StoredSide(arrow_schema(left.schema), None if times is None else times[0], retained[0], numbered),
        StoredSide(arrow_schema(right.schema), None if times is None else times[1], retained[1]),
    )


def _resolve_retention(retain: Any, problems: list[str]) -> tuple[int | None, int | None]:
    """Return the retention of each side in microseconds, None for ever."""
    if isinstance(retain, tuple) and len(retain) == 2:
        left, right = (None if time is None else read_duration("retain", time, problems) for time in retain)
        return left, right
    retention = None if retain is None else read_duration("retain", retain, problems, "a tuple for both sides, or ")
    return retention, retention
