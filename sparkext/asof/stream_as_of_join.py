"""`stream_asof_join`: joins each row of a stream with the row of another stream that is nearest in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparkext.asof.resolved_as_of import AsOfArguments, resolve_as_of
from sparkext.asof.stream_as_of_task import StreamAsOfJoinTask
from sparkext.joins.arguments import check_arrow_types, check_signature, refuse
from sparkext.joins.columns import resolve_column
from sparkext.joins.durations import Duration
from sparkext.joins.lineage import Lineage
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.rows.types import spark_key_type
from sparkext.spark.arrow import arrow_schema
from sparkext.spark.session_settings import is_case_sensitive, settings_of
from sparkext.streaming.arguments import check_name, resolve_join_session
from sparkext.streaming.join.event_times import remove_watermarks, resolve_event_times
from sparkext.streaming.join.frame import create_join_frame, restore_names
from sparkext.streaming.state.nearest_order import NearestOrder
from sparkext.streaming.state.stream_state import StoredSide

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType


@check_signature('stream_asof_join(left, right, on="time")')
def stream_asof_join(
    left: DataFrame,
    right: DataFrame,
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
    session = resolve_join_session(left, right, "asof_join", problems)
    check_name(name, problems)
    if session is None:
        refuse(problems)
    assert session is not None
    settings = settings_of(session)
    for side, frame in (("left", left), ("right", right)):
        check_arrow_types(frame.schema, side, problems)
    case_sensitive = is_case_sensitive(session)
    outputs = Lineage.starting_at(left).outputs
    arguments = AsOfArguments(on, by, direction, tolerance, allow_exact_matches, how)
    fields = right.schema.fields
    resolved = resolve_as_of(outputs, fields, arguments, 1, settings.algorithm, case_sensitive, problems)
    if direction in ("forward", "nearest") and tolerance is None:
        problems.append(f"direction={direction!r} requires a tolerance: without it, left rows would wait for ever")
    column = _resolve_ties(ties, fields, case_sensitive, problems)
    times = resolve_event_times(left, right, "an as-of join of streams", problems)
    if resolved is not None and times is not None:
        _check_times(resolved, times, problems)
    refuse(problems)
    assert resolved is not None, "or there is a problem"
    sides = derive_stored_sides(left.schema, right.schema, resolved, column)
    # Backward, a row is emitted as soon as the watermark passes it, so its time column keeps the watermark.
    resolved = remove_watermarks(resolved, but=_find_compared_columns(resolved)[0] if direction == "backward" else None)
    joined = create_join_frame(left, right, resolved, sides, settings, name, f"ties by {ties}", task=StreamAsOfJoinTask)
    return joined.select(*restore_names(resolved))


def _resolve_ties(ties: Any, fields: Sequence[StructField], case_sensitive: bool, problems: list[str]) -> int | None:
    """Return the position of the column that orders rows of equal time, None without `ties` or if it is invalid."""
    if ties is None:
        return None
    if not isinstance(ties, str):
        problems.append(f"ties={ties!r}: expected the name of a column of the right side")
        return None
    found = resolve_column(ties, fields, "right", case_sensitive, problems)
    if found is not None and spark_key_type(fields[found]) is None:
        problems.append(f"ties={ties!r}: rows cannot be ordered by a {fields[found].dataType.simpleString()}")
    return found


def _find_compared_columns(resolved: ResolvedJoin) -> tuple[int, int]:
    """Return the positions of the columns whose distance is compared, left and right."""
    assert resolved.spec.as_of is not None, "as it is an as-of join"
    return resolved.spec.as_of.probe.column, resolved.spec.as_of.build


def _check_times(resolved: ResolvedJoin, times: tuple[int, int], problems: list[str]) -> None:
    near = _find_compared_columns(resolved)
    for side, time, column in zip(("left", "right"), times, near, strict=True):
        if time != column:
            problems.append(f"on must name the column with the watermark: on the {side} side it names another column")


def derive_stored_sides(
    left: StructType, right: StructType, resolved: ResolvedJoin, ties: int | None
) -> tuple[StoredSide, StoredSide]:
    """Return how rows are stored: left rows until they are emitted, right rows while they may be the nearest."""
    as_of, rows = resolved.spec.as_of, arrow_schema(right)
    assert as_of is not None, "as it is an as-of join"
    tolerance = None if as_of.tolerance is None else int(as_of.tolerance)
    waits = 0 if as_of.direction == "backward" or tolerance is None else tolerance
    kept = None if tolerance is None else tolerance + (waits if as_of.direction == "nearest" else 0)
    keys = tuple(key.build for key in resolved.spec.keys)
    order = NearestOrder(len(rows), as_of.build, ties, keys, last_only=as_of.direction == "backward")
    return (
        StoredSide(arrow_schema(left), as_of.probe.column, waits),
        StoredSide(rows, as_of.build, kept, order=order),
    )
