"""`stream_join`: joins two streams on any condition."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkext.config import Settings
from sparkext.exchange.partitioning import Partitioning
from sparkext.plans.fragments import LEFT, LINES, RIGHT
from sparkext.plans.join_names import join_kind
from sparkext.plans.routing import RoutingTable
from sparkext.plans.spec import PROBE, ColumnRef, KeyPair, PipelineSpec, RangePair
from sparkext.rows.types import arrow_key_type
from sparkext.spark.arrow import arrow_schema
from sparkext.spark.frames import is_dataframe, map_in_arrow
from sparkext.spark.session_settings import is_connect, parallelism, tasks_per_executor
from sparkext.spark.slot_keys import slot_keys
from sparkext.spark.stream_queries import tell_checkpoints
from sparkext.state.join_state import StoredSide
from sparkext.transforms.arguments import check_travel, read_or_default, refuse
from sparkext.transforms.columns import OutputField
from sparkext.transforms.join_condition import JoinCondition, read_condition
from sparkext.transforms.resolved_join import ResolvedJoin, resolve_join
from sparkext.worker.micro_batch import CHECKPOINT, RUN
from sparkext.worker.stream_cells_task import COLUMNS, DDL, StreamCellsTask
from sparkext.worker.stream_join import StreamJoin
from sparkext.worker.stream_join_task import StreamJoinTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    On = str | Sequence[str] | Sequence[tuple[str, str] | tuple[str, str, str]] | None

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LINE = pa.field("line", pa.uint16())


def stream_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: On = None,
    how: str = "inner",
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
        As in `pipelined_join`: names, or tuples of names with an operator.
    how:
        `inner`, or `cross` without `on`.
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
    if kind != "inner":
        problems.append(f"how={how!r}: two streams are joined as 'inner' or 'cross'")
    if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
        problems.append(f"name={name!r}: expected letters, digits, dots, dashes and underscores, up to 100 of them")
    told = len(problems)
    condition = read_condition(on, kind, how, problems)
    if session is None or len(problems) > told:
        refuse(problems, misconfigured)
    assert session is not None
    for side, frame in (("left", left), ("right", right)):
        check_travel(frame.schema, side, problems)
    resolved = _resolved(left, right, condition, settings, session, problems)
    refuse(problems, misconfigured)
    assert resolved is not None, "or there is a problem"
    return _frame(session, left, right, resolved, settings, name)


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
    condition: JoinCondition,
    settings: Settings,
    session: SparkSession,
    problems: list[str],
) -> ResolvedJoin | None:
    outputs = [OutputField(field, ColumnRef(PROBE, number)) for number, field in enumerate(left.schema.fields)]
    return resolve_join(
        outputs,
        right.schema.fields,
        condition,
        "inner",
        source=1,
        algorithm=settings.algorithm,
        case_sensitive=session.conf.get("spark.sql.caseSensitive", "false") == "true",
        problems=problems,
    )


def _frame(
    session: SparkSession,
    left: DataFrame,
    right: DataFrame,
    resolved: ResolvedJoin,
    settings: Settings,
    name: str | None,
) -> DataFrame:
    from pyspark.sql.types import StructType

    schema = StructType([output.field for output in resolved.outputs])
    frames = (left, right)
    sides = [StoredSide(arrow_schema(frame.schema).append(_LINE)) for frame in frames]
    outputs = tuple(output.ref for output in resolved.outputs)
    forward = PipelineSpec(len(sides[LEFT].schema), (resolved.spec,), outputs)
    backward = _mirrored(forward, len(sides[RIGHT].schema))
    slots = max(1, min(int(session.conf.get("spark.sql.shuffle.partitions") or "1"), parallelism(session)))
    made_by = f"{resolved.spec.label} of {left.schema.simpleString()} and {right.schema.simpleString()}"
    join = StreamJoin(
        name or f"join-{hashlib.sha256(json.dumps(made_by).encode()).hexdigest()[:16]}",
        made_by,
        uuid.uuid4().hex,
        (sides[LEFT], sides[RIGHT]),
        _keys(resolved, settings),
        (forward.to_json(), backward.to_json()),
        arrow_schema(schema),
        slots,
        settings,
        tasks_per_executor(session),
    )
    tell_checkpoints(session, CHECKPOINT, RUN)
    keys = slot_keys(slots)
    cells = [map_in_arrow(frame, StreamCellsTask(join, side, keys), DDL) for side, frame in enumerate(frames)]
    return cells[LEFT].unionAll(cells[RIGHT]).repartition(slots, COLUMNS[0]).mapInArrow(StreamJoinTask(join), schema)


def _keys(resolved: ResolvedJoin, settings: Settings) -> tuple[Partitioning, Partitioning] | None:
    """Return how the lines of both sides follow from their keys, None if there are none."""
    keys = resolved.spec.keys
    if not keys:
        return None
    types = tuple(arrow_key_type(key_type) for key_type in resolved.key_types)
    null_safe = tuple(key.null_safe for key in keys)
    table = RoutingTable(LINES, 1)
    columns = (tuple(key.probe.column for key in keys), tuple(key.build for key in keys))
    return (
        Partitioning(columns[LEFT], types, null_safe, table, False, settings.debug_hash_mask),
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
    return PipelineSpec(probe_columns, (replace(join, keys=keys, ranges=ranges),), outputs)
