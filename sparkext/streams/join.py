"""`stream_join`: joins two streams on any condition."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkext.config import Settings
from sparkext.exchange.partitioning import Partitioning
from sparkext.plans.expression import BOOL, Expression
from sparkext.plans.fragments import LEFT, LINES, RIGHT
from sparkext.plans.join_names import join_kind
from sparkext.plans.key_types import KeyType
from sparkext.plans.routing import RoutingTable
from sparkext.plans.spec import PROBE, ColumnRef, KeyPair, PipelineSpec, RangePair
from sparkext.plans.theta import PythonPredicate, Theta
from sparkext.rows.types import arrow_key_type
from sparkext.spark.arrow import arrow_schema
from sparkext.spark.frames import is_dataframe, map_in_arrow, quoted
from sparkext.spark.session_settings import is_connect, parallelism, tasks_per_executor
from sparkext.spark.slot_keys import slot_keys
from sparkext.spark.stream_queries import tell_checkpoints
from sparkext.state.join_state import StoredSide
from sparkext.streams.retention import stored_sides
from sparkext.transforms.arguments import check_travel, read_or_default, refuse
from sparkext.transforms.columns import OutputField
from sparkext.transforms.join_condition import JoinCondition, read_condition
from sparkext.transforms.resolved_join import ResolvedJoin, resolve_join
from sparkext.transforms.resolved_theta import resolve_theta
from sparkext.worker.micro_batch import CHECKPOINT, RUN
from sparkext.worker.stream_cells_task import COLUMNS, DDL, SlotNumbersTask, StreamCellsTask
from sparkext.worker.stream_join import PROGRESS, PROGRESS_FIELDS, StreamJoin
from sparkext.worker.stream_join_task import StreamJoinTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    On = str | Sequence[str] | Sequence[tuple[str, str] | tuple[str, str, str]] | Callable[[Any, Any], bool] | None

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


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
    return None if found is None else with_all_columns(found)


def with_all_columns(resolved: ResolvedJoin) -> ResolvedJoin:
    """Return a join that numbers the columns of its right side as they are there, and not as a semi join needs them."""
    place, spec = resolved.published, resolved.spec
    keys = tuple(replace(key, build=place[key.build]) for key in spec.keys)
    ranges = tuple(replace(pair, build=place[pair.build]) for pair in spec.ranges)
    return replace(resolved, spec=replace(spec, keys=keys, ranges=ranges))


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
    made_by = f"{resolved.spec.label} of {left.schema.simpleString()} and {right.schema.simpleString()}"
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
        time = left.columns[_event_time(sides[LEFT])]
        both = both.unionAll(map_in_arrow(_ticks(left, time), SlotNumbersTask(join, keys), DDL))
    slot_rows = both.repartition(slots, COLUMNS[0])
    joined = slot_rows.mapInArrow(StreamJoinTask(join), emitted).toDF(*_placed(len(names)), PROGRESS)
    told = [F.sum(f"{PROGRESS}.{field}").alias(field) for field in PROGRESS_FIELDS]
    # Spark refuses two metrics of one name, but says less than who claims the state of one.
    metrics = f"{PROGRESS}.{join.name}" if name is not None else f"{PROGRESS}.{join.name}.{join.token[:8]}"
    rows = joined.observe(metrics, *told).where(F.col(PROGRESS).isNull()).drop(PROGRESS)
    return rows.select(*(F.col(place).alias(name) for place, name in zip(_placed(len(names)), names, strict=True)))


def _ticks(frame: DataFrame, time: str) -> DataFrame:
    """Return no rows, of an operator with state: for such a one Spark runs a batch when the watermark has moved."""
    from pyspark.sql import functions as F

    return frame.select(F.col(quoted(time)).alias("time")).where(F.rand() < -1).dropDuplicates(["time"])


def _placed(columns: int) -> list[str]:
    return [f"c{number}" for number in range(columns)]


def planned_join(
    resolved: ResolvedJoin,
    sides: tuple[StoredSide, StoredSide],
    slots: int,
    settings: Settings,
    tasks_sharing: int | None,
    made_by: str,
    name: str | None = None,
) -> StreamJoin:
    """Return the join of two sides as its tasks know it. `made_by` tells what it is, see `StreamJoin`."""
    from pyspark.sql.types import StructType

    windows = [
        _before(ColumnRef(1 - side, _event_time(sides[1 - side])), ColumnRef(side, stored.until), stored)
        for side, stored in enumerate(sides)
        if stored.until is not None
    ]
    condition = Expression("and", BOOL, tuple(windows)) if windows else None
    how = resolved.spec.how
    outputs = tuple(output.ref for output in resolved.outputs)
    hidden = () if how == "inner" else (sides[LEFT].until, sides[LEFT].line, sides[LEFT].number)
    found = (*outputs, *(ColumnRef(PROBE, place) for place in hidden if place is not None))
    pairs = replace(resolved.spec, how="inner", condition=condition)
    forward = PipelineSpec(len(sides[LEFT].schema), (pairs,), found)
    return StreamJoin(
        name or f"join-{hashlib.sha256(made_by.encode()).hexdigest()[:16]}",
        made_by,
        uuid.uuid4().hex,
        sides,
        _keys(resolved, settings),
        (forward.to_json(), _mirrored(forward, len(sides[RIGHT].schema)).to_json()),
        arrow_schema(StructType([output.field for output in resolved.outputs])),
        slots,
        settings,
        tasks_sharing,
        how,
        tuple(ref.column if ref.source == PROBE else None for ref in outputs),
    )


def _event_time(side: StoredSide) -> int:
    assert side.event_time is not None, "both sides have one, or none"
    return side.event_time


def _before(time: ColumnRef, until: ColumnRef, side: StoredSide) -> Expression:
    """Return the test that a row of one side happened while one of the other was kept."""
    kind = KeyType("timestamp" if side.rows.types[_event_time(side)].tz else "timestamp_ntz")
    column = partial(Expression, "column", kind)
    return Expression(
        "<=",
        BOOL,
        (column(source=time.source, column=time.column), column(source=until.source, column=until.column)),
    )


def _keys(resolved: ResolvedJoin, settings: Settings) -> tuple[Partitioning, Partitioning] | None:
    """Return how the lines of both sides follow from their keys, None if there are none."""
    keys = resolved.spec.keys
    if not keys:
        return None
    types = tuple(arrow_key_type(key_type) for key_type in resolved.key_types)
    null_safe = tuple(key.null_safe for key in keys)
    table = RoutingTable(LINES, 1)
    columns = (tuple(key.probe.column for key in keys), tuple(key.build for key in keys))
    keeps_left = resolved.spec.how == "left"
    return (
        Partitioning(columns[LEFT], types, null_safe, table, keeps_left, settings.debug_hash_mask),
        Partitioning(columns[RIGHT], types, null_safe, table, False, settings.debug_hash_mask),
    )


def _mirrored(spec: PipelineSpec, probe_columns: int) -> PipelineSpec:
    """Return the same inner join with its sides exchanged."""
    [join] = spec.joins
    keys = tuple(KeyPair(ColumnRef(PROBE, key.build), key.probe.column, key.type, key.null_safe) for key in join.keys)
    ranges = tuple(
        RangePair(ColumnRef(PROBE, pair.build), _MIRRORED[pair.op], pair.probe.column, pair.type)
        for pair in join.ranges
    )
    outputs = tuple(replace(output, source=1 - output.source) for output in spec.outputs)
    condition = None if join.condition is None else _exchanged(join.condition)
    mirrored = replace(join, keys=keys, ranges=ranges, condition=condition, theta=_theta_exchanged(join.theta))
    return PipelineSpec(probe_columns, (mirrored,), outputs)


def _theta_exchanged(theta: Theta | None) -> Theta | None:
    if not isinstance(theta, PythonPredicate):
        return None if theta is None else _exchanged(theta)
    left, right = (
        tuple(replace(column, source=1 - column.source) for column in side) for side in (theta.left, theta.right)
    )
    return replace(theta, left=left, right=right, exchanged=not theta.exchanged)


def _exchanged(node: Expression) -> Expression:
    """Return the same expression of two sides that have taken each other's place."""
    if node.op == "column":
        return replace(node, source=1 - node.source)
    return replace(node, args=tuple(map(_exchanged, node.args)))
