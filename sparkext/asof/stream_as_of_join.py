"""`stream_asof_join`: joins each row of a stream with the row of another stream that is nearest in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkext.asof.resolved_as_of import AsOfArguments, resolve_as_of
from sparkext.asof.stream_as_of_task import StreamAsOfJoinTask
from sparkext.joins.arguments import refuse, resolve_ties
from sparkext.joins.calls import transform_function
from sparkext.joins.durations import Duration
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.spark.arrow import arrow_schema
from sparkext.streaming.arguments import check_name, read_streams
from sparkext.streaming.join.event_times import remove_watermarks, resolve_event_times
from sparkext.streaming.join.frame import create_join_frame, restore_names
from sparkext.streaming.state.nearest_order import NearestOrder
from sparkext.streaming.state.stream_state import StoredSide

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@transform_function('right, on="time"')
def stream_asof_join(
    left: DataFrame,
    right: DataFrame,
    /,
    *,
    on: str | tuple[str, str],
    by: str | Sequence[str | tuple[str, str]] | None = None,
    direction: str = "backward",
    tolerance: Duration | None = None,
    allow_exact_matches: bool = True,
    how: str = "left",
    ties: str | None = None,
    name: str | None = None,
) -> DataFrame:
    """Join each row of a stream with the single row of another stream that is nearest in time.

        priced = stream_asof_join(trades, quotes, on=("traded", "quoted"), by="symbol", tolerance="5 minutes")

    Without the left side as the first argument, the call returns a function for `DataFrame.transform`.

    A row is emitted once, after the watermark has passed all rows that may be the nearest. A quote that arrives late,
    but not too late for the watermark, therefore counts. The result does not depend on the order of arrival.

    Parameters
    ----------
    left, right:
        Streaming DataFrames of one session, with a watermark on the columns of `on`.
    on, by, direction, tolerance, allow_exact_matches, how:
        As in `asof_join`. `forward` and `nearest` need a tolerance, because each row waits for that time. `backward`
        without a tolerance stores the last row of each key for as long as the query runs.
    ties:
        A column of the right side that orders rows of equal time: `backward` takes the last of these rows, `forward`
        the first. By default the choice is arbitrary but repeatable.
    name:
        As in `stream_join`.

    Raises
    ------
    InvalidJoinError
        Lists every problem of the call.
    """
    problems: list[str] = []
    check_name(name, problems)
    if direction in ("forward", "nearest") and tolerance is None:
        problems.append(f"direction={direction!r} requires a tolerance: without it, left rows would wait for ever")
    streams = read_streams(left, right, "asof_join", problems)
    if streams is None:
        refuse(problems)
    assert streams is not None, "or there is a problem"
    arguments = AsOfArguments(on, by, direction, tolerance, allow_exact_matches, how)
    resolved = resolve_as_of(streams.inputs(), arguments, problems)
    column = resolve_ties(ties, right.schema.fields, "right", streams.case_sensitive, problems)
    times = resolve_event_times(left, right, "an as-of join of streams", problems)
    if resolved is not None and times is not None:
        _check_times(resolved, times, problems)
    refuse(problems)
    assert resolved is not None, "or there is a problem"
    sides = derive_stored_sides(left.schema, right.schema, resolved, column)
    # Backward, a row is emitted as soon as the watermark passes it, so its time column keeps the watermark.
    resolved = remove_watermarks(resolved, but=_find_compared_columns(resolved)[0] if direction == "backward" else None)
    joined = create_join_frame(streams, resolved, sides, name, f"ties by {ties}", task=StreamAsOfJoinTask)
    return joined.select(*restore_names(resolved))


def _find_compared_columns(resolved: ResolvedJoin) -> tuple[int, int]:
    """Return the positions of the columns whose distance is compared, left and right."""
    assert resolved.spec.as_of is not None, "as it is an as-of join"
    return resolved.spec.as_of.probe.column, resolved.spec.as_of.build


def _check_times(resolved: ResolvedJoin, times: tuple[int, int], problems: list[str]) -> None:
    compared_columns = _find_compared_columns(resolved)
    for side, time, column in zip(("left", "right"), times, compared_columns, strict=True):
        if time != column:
            problems.append(f"on must name the column with the watermark: on the {side} side it names another column")


def derive_stored_sides(
    left: StructType, right: StructType, resolved: ResolvedJoin, ties: int | None
) -> tuple[StoredSide, StoredSide]:
    """Return the stored form of both sides.

    Left rows are stored until they are emitted, right rows while they may be the nearest.
    """
    as_of, rows = resolved.spec.as_of, arrow_schema(right)
    assert as_of is not None, "as it is an as-of join"
    tolerance = None if as_of.tolerance is None else int(as_of.tolerance)
    left_retention = 0 if as_of.direction == "backward" or tolerance is None else tolerance
    right_retention = None if tolerance is None else tolerance + (left_retention if as_of.direction == "nearest" else 0)
    keys = tuple(key.build for key in resolved.spec.keys)
    order = NearestOrder(len(rows), as_of.build, ties, keys, last_only=as_of.direction == "backward")
    return (
        StoredSide(arrow_schema(left), as_of.probe.column, left_retention),
        StoredSide(rows, as_of.build, right_retention, order=order),
    )
