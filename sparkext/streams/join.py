"""`stream_join`: joins two streams on any condition."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sparkext.config import Settings
from sparkext.plans.fragments import LEFT, RIGHT
from sparkext.plans.join_names import join_kind
from sparkext.plans.spec import MOST_COMPARED, PROBE, ColumnRef
from sparkext.spark.frames import is_dataframe, map_in_arrow, quoted
from sparkext.spark.session_settings import is_connect, parallelism, tasks_per_executor
from sparkext.spark.slot_keys import slot_keys
from sparkext.spark.stream_queries import tell_checkpoints
from sparkext.state.join_state import StoredSide
from sparkext.streams.planned import event_time, planned_join, with_all_columns
from sparkext.streams.retention import stored_sides
from sparkext.transforms.arguments import check_travel, read_or_default, refuse
from sparkext.transforms.columns import OutputField
from sparkext.transforms.join_condition import JoinCondition, read_condition
from sparkext.transforms.resolved_join import ResolvedJoin, resolve_join
from sparkext.transforms.resolved_theta import resolve_theta
from sparkext.worker.micro_batch import CHECKPOINT, RUN
from sparkext.worker.stream_cells_task import COLUMNS, DDL, SlotNumbersTask, StreamCellsTask
from sparkext.worker.stream_join import PROGRESS, PROGRESS_FIELDS
from sparkext.worker.stream_join_task import StreamJoinTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    On = str | Sequence[str] | Sequence[tuple[str, str] | tuple[str, str, str]] | Callable[[Any, Any], bool] | None

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def stream_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On = None,
    how: str = "inner",
    retain: str | tuple[str | None, str | None] | None = None,
    name: str | None = None,
) -> DataFrame:
    """Join two streams on any condition, equalities or none.

        hits = stream_join(orders, quotes, on=[("price", ">=", "low"), ("price", "<", "high")])
        hits.writeStream.option("checkpointLocation", folder).toTable("hits")

    A pair of rows comes out once, in the batch that brings the second of them. The result is a streaming DataFrame with
    the names, order, types and nullability that a join of two tables has, for any sink.

    Parameters
    ----------
    left, right:
        Streaming DataFrames of one session.
    on:
        As in `pipelined_join`: names, or tuples of names with an operator. Or a Python function of a left and a right
        row, as in `theta_join`: every pair is tried then.
    how:
        `inner`, or `cross` without `on`; `semi`: rows of the left side, when they first match; `left`: pairs, and rows
        of the left side that match nothing, when their time is over. The last two need to know for how long rows of
        the left side match (`retain`).
    retain:
        For how long after it has happened a row matches rows of the other side: a time such as `1 hour`, or one for
        each side, of which one may be None. Both sides need a watermark then: by its column it is told when a row
        happened, and rows that come late for it are left out, as in Spark's own joins. By default rows of any age
        match, and all are kept.
    name:
        That of the join's state in the checkpoint. Joins of one query that are alike need a name each.

    Raises
    ------
    InvalidJoinError
        Lists every problem of the call.
    """
    problems: list[str] = []
    session = _session(left, right, problems)
    settings, misconfigured = read_or_default(lambda key: None if session is None else session.conf.get(key, None), {})
    kind = join_kind(how) if isinstance(how, str) else None
    if kind not in ("inner", "left", "semi"):
        problems.append(f"how={how!r}: two streams are joined as 'inner', 'cross', 'left' or 'semi'")
    elif kind != "inner" and callable(on):
        problems.append(f"how={how!r}: streams that a function joins are joined as 'inner'")
    if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
        problems.append(f"name={name!r}: expected letters, digits, dots, dashes and underscores, up to 100 of them")
    told = len(problems)
    condition = on if callable(on) else read_condition(on, kind, how, problems)
    if session is None or len(problems) > told:
        refuse(problems, misconfigured)
    assert session is not None
    for side, frame in (("left", left), ("right", right)):
        check_travel(frame.schema, side, problems)
    resolved = _resolved(left, right, condition, kind or "inner", settings, session, problems)
    sides = stored_sides(left, right, retain, kind or "inner", problems)
    refuse(problems, misconfigured)
    assert resolved is not None and sides is not None, "or there is a problem"
    return _frame(session, left, right, resolved, sides, settings, name)


def _session(left: Any, right: Any, problems: list[str]) -> SparkSession | None:
    """Return the session of both sides, or None if there is none in which they can be joined."""
    for side, frame in (("left", left), ("right", right)):
        if not is_dataframe(frame):
            problems.append(f"the {side} side is no Spark DataFrame, but {type(frame).__name__}")
        elif not frame.isStreaming:
            problems.append(
                f"the {side} side is no stream: a stream is joined with a table by pipelined_join, whose left side is"
                " the stream"
            )
    if problems:
        return None
    if left.sparkSession is not right.sparkSession:
        problems.append("the two sides are of different sessions")
        return None
    session: SparkSession = left.sparkSession
    if session.version.startswith("3."):
        problems.append(f"streams are joined from Spark 4.0 on, this is {session.version}")
        return None
    if is_connect(session):
        problems.append("streams cannot be joined through Spark Connect: tasks are not told where the checkpoint lies")
        return None
    return session


def _resolved(
    left: DataFrame,
    right: DataFrame,
    condition: JoinCondition | Callable[[Any, Any], bool],
    kind: str,
    settings: Settings,
    session: SparkSession,
    problems: list[str],
) -> ResolvedJoin | None:
    outputs = [OutputField(field, ColumnRef(PROBE, number)) for number, field in enumerate(left.schema.fields)]
    case_sensitive = session.conf.get("spark.sql.caseSensitive", "false") == "true"
    fields = right.schema.fields
    if not isinstance(condition, JoinCondition):
        return resolve_theta(outputs, fields, condition, "inner", 1, case_sensitive, problems)
    found = resolve_join(outputs, fields, condition, kind, 1, settings.algorithm, case_sensitive, problems)
    compared = set() if found is None else {(pair.probe.column, pair.type) for pair in found.spec.ranges}
    if len(compared) > MOST_COMPARED:
        problems.append(
            f"on compares {len(compared)} columns of the left side, whose rows are looked up, too: an index supports at"
            f" most {MOST_COMPARED}. For the others, filter the result of an inner join"
        )
    return None if found is None else with_all_columns(found)


def _frame(
    session: SparkSession,
    left: DataFrame,
    right: DataFrame,
    resolved: ResolvedJoin,
    sides: tuple[StoredSide, StoredSide],
    settings: Settings,
    name: str | None,
) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StructField, StructType

    slots = max(1, min(int(session.conf.get("spark.sql.shuffle.partitions") or "1"), parallelism(session)))
    kept = ", ".join("for ever" if side.retained is None else f"{side.retained} µs" for side in sides)
    of = f"{left.schema.simpleString()} and {right.schema.simpleString()}, kept {kept}"
    made_by = f"{resolved.spec.label} of {of}"
    join = planned_join(resolved, sides, slots, settings, tasks_per_executor(session), made_by, name)
    tell_checkpoints(session, CHECKPOINT, RUN)
    keys = slot_keys(slots)
    cells = [map_in_arrow(frame, StreamCellsTask(join, side, keys), DDL) for side, frame in enumerate((left, right))]
    fields = [output.field for output in resolved.outputs]
    progress = StructType([StructField(field, LongType()) for field in PROGRESS_FIELDS])
    emitted = StructType([*fields, StructField(PROGRESS, progress)])
    names = [output.field.name for output in resolved.outputs]
    both = cells[LEFT].unionAll(cells[RIGHT])
    if join.how == "left":
        time = left.columns[event_time(sides[LEFT])]
        both = both.unionAll(map_in_arrow(_ticks(left, time), SlotNumbersTask(keys), DDL))
    slot_rows = both.repartition(slots, COLUMNS[0])
    joined = slot_rows.mapInArrow(StreamJoinTask(join), emitted).toDF(*_placed(len(names)), PROGRESS)
    told = [F.sum(f"{PROGRESS}.{field}").alias(field) for field in PROGRESS_FIELDS]
    # Spark refuses two metrics of one name, but says less than who claims the state of one.
    metrics = f"sparkext.{join.name}" if name is not None else f"sparkext.{join.name}.{join.token[:8]}"
    rows = joined.observe(metrics, *told).where(F.col(PROGRESS).isNull()).drop(PROGRESS)
    return rows.select(*(F.col(place).alias(name) for place, name in zip(_placed(len(names)), names, strict=True)))


def _ticks(frame: DataFrame, time: str) -> DataFrame:
    """Return no rows, of an operator with state: for such a one Spark runs a batch when the watermark has moved."""
    from pyspark.sql import functions as F

    return frame.select(F.col(quoted(time)).alias("time")).where(F.rand() < -1).dropDuplicates(["time"])


def _placed(columns: int) -> list[str]:
    return [f"c{number}" for number in range(columns)]
