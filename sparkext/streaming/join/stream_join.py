"""`stream_join`: a join of two streams on any condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sparkext.joins.arguments import read_kind, refuse
from sparkext.joins.calls import transform_function
from sparkext.joins.durations import Duration
from sparkext.joins.join_condition import read_condition
from sparkext.spark.frames import is_column
from sparkext.streaming.arguments import JoinedStreams, check_name, read_streams
from sparkext.streaming.join.column_condition import read_columns
from sparkext.streaming.join.event_times import remove_watermarks, resolve_time_column
from sparkext.streaming.join.frame import create_join_frame, restore_names
from sparkext.streaming.join.retention import resolve_stored_sides
from sparkext.streaming.join.stream_condition import FunctionCondition, NameCondition, StreamCondition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Names = str | Sequence[str] | Sequence[tuple[str, ...]]
    On = Names | Column | Callable[[Any, Any], bool] | None


@transform_function('right, on=[("price", ">=", "low")]')
def stream_join(
    left: DataFrame,
    right: DataFrame,
    /,
    *,
    on: On = None,
    how: str = "inner",
    retain: Duration | tuple[Duration | None, Duration | None] | None = None,
    event_time: str | None = None,
    name: str | None = None,
) -> DataFrame:
    """Join two streams on any condition, with or without equalities.

        hits = stream_join(orders, quotes, on=[("price", ">=", "low"), ("price", "<", "high")])
        hits.writeStream.option("checkpointLocation", folder).toTable("hits")

    Without the left side as the first argument, the call returns a function for `DataFrame.transform`.

    Each pair of rows is emitted once, in the batch with the second of its rows. The result is a streaming DataFrame
    with the column names, column order, types and nullability of a join of two tables. It works with any sink.

    Parameters
    ----------
    left, right:
        Streaming DataFrames of one session.
    on:
        As in `pipelined_join`: names, or tuples of names with an operator. Or a condition on Columns, as in
        `DataFrame.join`: at least one part must compare a left value with a right value by =, <=>, <, <=, > or >=.
        Parts about one side filter that side; any other part filters the pairs, which only inner joins support. Or a
        Python function of a left and a right row, as in `theta_join`, which is evaluated for every pair (inner joins
        only).
    how:
        `inner`, or `cross` without `on`; `semi`: left rows, when they first match; `left`: pairs, and left rows without
        a match, when they expire. `semi` and `left` require `retain` for the left side.
    retain:
        How long after its event time a row matches rows of the other side: a text such as `1 hour` or a timedelta, or a
        tuple with one of these for each side, one of which may be None. Both sides then need a watermark, whose column
        is the event time. Late rows are dropped, as in Spark's own joins. By default rows of any age match, and all
        rows are stored.
    event_time:
        The name of an additional column: the later event time of the two rows, or, for a row without a match, the time
        at which it expired. It has a watermark, for windows after the join; no other column of the result has one. Both
        sides need a watermark.
    name:
        The name of the join's state in the checkpoint. Equal joins in one query need different names.

    Raises
    ------
    InvalidJoinError
        Lists every problem of the call.
    """
    problems: list[str] = []
    kind = read_kind(how, ("inner", "left", "semi"), "stream_join", problems)
    if event_time is not None and (not isinstance(event_time, str) or kind not in ("inner", "left")):
        problems.append(
            f"event_time={event_time!r}: expected a name, for an inner or a left join (the time at which a semi join"
            " emits a row depends on which match arrives first)"
        )
    check_name(name, problems)
    streams = read_streams(left, right, "pipelined_join", problems)
    condition = _read_condition(streams, on, kind, how, problems)
    if condition is None:
        refuse(problems)
    assert condition is not None, "or there is a problem"
    streams, kind = condition.streams, kind or "inner"
    resolved = condition.resolve(kind, problems)
    sides = resolve_stored_sides(streams.left, streams.right, retain, kind, event_time is not None, problems)
    time = None
    if resolved is not None and sides is not None and event_time is not None:
        time = resolve_time_column(event_time, resolved, sides, streams.case_sensitive, problems)
    refuse(problems)
    assert resolved is not None and sides is not None, "or there is a problem"
    resolved = remove_watermarks(resolved)
    pairs = condition.where(create_join_frame(streams, resolved, sides, name, *condition.texts))
    return pairs.select(*restore_names(resolved), *([] if time is None else [time.column()]))


def _read_condition(
    streams: JoinedStreams | None, on: Any, kind: str | None, how: Any, problems: list[str]
) -> StreamCondition | None:
    """Return the condition, or None if `problems` got longer or there are no `streams`."""
    if is_column(on):
        return None if streams is None else read_columns(streams, on, kind or "inner", problems)
    if callable(on):
        if kind not in (None, "inner"):
            problems.append(f"how={how!r}: expected 'inner' for a join by a function")
        return None if streams is None else FunctionCondition(streams, on)
    names = read_condition(on, kind, how, problems)
    return None if streams is None or names is None else NameCondition(streams, names)
