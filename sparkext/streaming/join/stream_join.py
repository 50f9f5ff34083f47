"""`stream_join`: a join of two streams on any condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sparkext.config import Settings
from sparkext.joins.arguments import check_arrow_types, check_signature, refuse
from sparkext.joins.durations import Duration
from sparkext.joins.join_condition import JoinCondition, read_condition
from sparkext.joins.lineage import Lineage
from sparkext.joins.resolved_join import ResolvedJoin, resolve_join
from sparkext.joins.resolved_theta import resolve_theta
from sparkext.plans.pipeline.join_names import parse_join_kind
from sparkext.plans.pipeline.spec import MOST_COMPARED
from sparkext.spark.session_settings import is_case_sensitive, settings_of
from sparkext.streaming.arguments import check_name, resolve_join_session
from sparkext.streaming.join.column_condition import is_column, read_columns
from sparkext.streaming.join.description_of import renumber_build_columns
from sparkext.streaming.join.event_times import remove_watermarks, resolve_time_column
from sparkext.streaming.join.frame import create_join_frame, restore_names
from sparkext.streaming.join.retention import resolve_stored_sides

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Names = str | Sequence[str] | Sequence[tuple[str, ...]]
    On = Names | Column | Callable[[Any, Any], bool] | None


@check_signature('stream_join(left, right, on=[("price", ">=", "low")])')
def stream_join(
    left: DataFrame,
    right: DataFrame,
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
    session = resolve_join_session(left, right, "pipelined_join", problems)
    kind = parse_join_kind(how) if isinstance(how, str) else None
    if kind not in ("inner", "left", "semi"):
        problems.append(f"how={how!r}: expected 'inner', 'cross', 'left' or 'semi' for a join of two streams")
    elif kind != "inner" and callable(on):
        problems.append(f"how={how!r}: expected 'inner' for a join by a function")
    if event_time is not None and (not isinstance(event_time, str) or kind not in ("inner", "left")):
        problems.append(
            f"event_time={event_time!r}: expected a name, for an inner or a left join (the time at which a semi join"
            " emits a row depends on which match arrives first)"
        )
    check_name(name, problems)
    told = len(problems)
    columns = None
    if not is_column(on):
        condition = on if callable(on) else read_condition(on, kind, how, problems)
    elif session is not None:
        columns = read_columns(left, right, on, kind or "inner", problems)
        if columns is not None:
            left, right, condition = columns.left, columns.right, columns.names
    if session is None or len(problems) > told:
        refuse(problems)
    assert session is not None
    settings = settings_of(session)
    for side, frame in (("left", left), ("right", right)):
        check_arrow_types(frame.schema, side, problems)
    case_sensitive = is_case_sensitive(session)
    resolved = _resolve_condition(left, right, condition, kind or "inner", settings, case_sensitive, problems)
    if resolved is not None and columns is not None:
        resolved = columns.hide_computed(resolved)
    sides = resolve_stored_sides(left, right, retain, kind or "inner", event_time is not None, problems)
    time = None
    if resolved is not None and sides is not None and event_time is not None:
        time = resolve_time_column(event_time, resolved, sides, case_sensitive, problems)
    refuse(problems)
    assert resolved is not None and sides is not None, "or there is a problem"
    also_told = () if columns is None else (columns.text,)
    resolved = remove_watermarks(resolved)
    joined = create_join_frame(left, right, resolved, sides, settings, name, *also_told)
    if columns is not None:
        joined = columns.where(joined)
    return joined.select(*restore_names(resolved), *([] if time is None else [time.column()]))


def _resolve_condition(
    left: DataFrame,
    right: DataFrame,
    condition: JoinCondition | Callable[[Any, Any], bool],
    kind: str,
    settings: Settings,
    case_sensitive: bool,
    problems: list[str],
) -> ResolvedJoin | None:
    outputs = Lineage.starting_at(left).outputs
    fields = right.schema.fields
    if not isinstance(condition, JoinCondition):
        return resolve_theta(outputs, fields, condition, "inner", 1, case_sensitive, problems)
    found = resolve_join(outputs, fields, condition, kind, 1, settings.algorithm, case_sensitive, problems)
    compared = set() if found is None else {(pair.probe.column, pair.type) for pair in found.spec.ranges}
    if len(compared) > MOST_COMPARED:
        problems.append(
            f"on compares {len(compared)} columns of the left side, whose rows are indexed as well, but an index"
            f" supports at most {MOST_COMPARED}. Filter the result of an inner join by the other columns"
        )
    return None if found is None else renumber_build_columns(found)
