"""The description of a join of two streams that is sent to its tasks. Rows of each side are looked up in the other."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sparkext.config import Settings
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.plans.expressions.expression import BOOL, Expression
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.pipeline.spec import MIRRORED, PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec, RangePair
from sparkext.plans.pipeline.theta import PythonPredicate, Theta
from sparkext.plans.shuffle.fragments import BUCKETS, LEFT, RIGHT
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.rows.types import arrow_key_type
from sparkext.shuffle.partitioning import Partitioning
from sparkext.spark.arrow import arrow_schema
from sparkext.streaming.join.description import StreamJoin
from sparkext.streaming.state.stream_state import StoredSide
from sparkext.streaming.stream_operator import identify_operator


def describe_join(
    resolved: ResolvedJoin,
    sides: tuple[StoredSide, StoredSide],
    partitions: int,
    settings: Settings,
    tasks_sharing: int | None,
    made_by: str,
    name: str | None = None,
) -> StreamJoin:
    """Return the description of a join that is sent to its tasks; for `made_by` see `StreamOperator`."""
    from pyspark.sql.types import StructType

    outputs = tuple(output.ref for output in resolved.outputs)
    specs = (
        _plan_pair_lookups(resolved.spec, outputs, sides)
        if resolved.spec.as_of is None
        else _plan_candidate_lookup(resolved.spec, sides)
    )
    return StreamJoin(
        *identify_operator("join", made_by, name),
        partitions,
        settings,
        tasks_sharing,
        sides,
        _create_key_partitionings(resolved, settings),
        specs,
        arrow_schema(StructType([output.field for output in resolved.outputs])),
        outputs,
        resolved.spec.how,
    )


def _plan_pair_lookups(
    join: JoinSpec, outputs: tuple[ColumnRef, ...], sides: tuple[StoredSide, StoredSide]
) -> tuple[PipelineSpec, PipelineSpec]:
    """Return the pipelines by which left rows find all their right matches, and right rows their left matches."""
    windows = [
        _create_expiry_test(
            ColumnRef(1 - side, require_event_time(sides[1 - side])), ColumnRef(side, stored.until), stored
        )
        for side, stored in enumerate(sides)
        if stored.until is not None
    ]
    condition = Expression("and", BOOL, tuple(windows)) if windows else None
    hidden = () if join.how == "inner" else sides[LEFT].hidden
    columns = (*outputs, *(ColumnRef(PROBE, column) for column in hidden))
    pairs = replace(join, how="inner", condition=condition)
    forward = PipelineSpec(len(sides[LEFT].schema), (pairs,), columns)
    return forward, _mirror_pipeline(forward, len(sides[RIGHT].schema))


def _plan_candidate_lookup(join: JoinSpec, sides: tuple[StoredSide, StoredSide]) -> tuple[PipelineSpec]:
    """Return the pipeline that finds the nearest row in a run of the right side, with the position of the left row."""
    position_column = len(sides[LEFT].schema)
    right_columns = [ColumnRef(PROBE + 1, number) for number in range(len(sides[RIGHT].rows))]
    return (
        PipelineSpec(
            position_column + 1, (replace(join, how="inner"),), (*right_columns, ColumnRef(PROBE, position_column))
        ),
    )


def require_event_time(side: StoredSide) -> int:
    """Return the event-time column of a side."""
    assert side.event_time is not None, "both sides have one, or none"
    return side.event_time


def _create_expiry_test(time: ColumnRef, until: ColumnRef, side: StoredSide) -> Expression:
    """Return the test that the event time of a row is not after the expiry of a row of the other side."""
    kind = KeyType("timestamp" if side.rows.types[require_event_time(side)].tz else "timestamp_ntz")
    column = partial(Expression, "column", kind)
    return Expression(
        "<=",
        BOOL,
        (column(source=time.source, column=time.column), column(source=until.source, column=until.column)),
    )


def _create_key_partitionings(resolved: ResolvedJoin, settings: Settings) -> tuple[Partitioning, Partitioning] | None:
    """Return the partitionings of both sides' keys into buckets, None without keys."""
    keys = resolved.spec.keys
    if not keys:
        return None
    types = tuple(arrow_key_type(key_type) for key_type in resolved.key_types)
    null_safe = tuple(key.null_safe for key in keys)
    table = RoutingTable(BUCKETS, 1)
    columns = (tuple(key.probe.column for key in keys), tuple(key.build for key in keys))
    keeps_left = resolved.spec.how == "left"
    return (
        Partitioning(columns[LEFT], types, null_safe, table, keeps_left, settings.debug_hash_mask),
        Partitioning(columns[RIGHT], types, null_safe, table, False, settings.debug_hash_mask),
    )


def _mirror_pipeline(spec: PipelineSpec, probe_columns: int) -> PipelineSpec:
    """Return the same inner join with its sides exchanged."""
    [join] = spec.joins
    keys = tuple(KeyPair(ColumnRef(PROBE, key.build), key.probe.column, key.type, key.null_safe) for key in join.keys)
    ranges = tuple(
        RangePair(ColumnRef(PROBE, pair.build), MIRRORED[pair.op], pair.probe.column, pair.type) for pair in join.ranges
    )
    outputs = tuple(replace(output, source=1 - output.source) for output in spec.outputs)
    condition = None if join.condition is None else _exchange_sides(join.condition)
    mirrored = replace(join, keys=keys, ranges=ranges, condition=condition, theta=_exchange_theta_sides(join.theta))
    return PipelineSpec(probe_columns, (mirrored,), outputs)


def _exchange_theta_sides(theta: Theta | None) -> Theta | None:
    if not isinstance(theta, PythonPredicate):
        return None if theta is None else _exchange_sides(theta)
    left, right = (
        tuple(replace(column, source=1 - column.source) for column in side) for side in (theta.left, theta.right)
    )
    return replace(theta, left=left, right=right, exchanged=not theta.exchanged)


def _exchange_sides(node: Expression) -> Expression:
    """Return the same expression after an exchange of the two sides."""
    if node.op == "column":
        return replace(node, source=1 - node.source)
    return replace(node, args=tuple(map(_exchange_sides, node.args)))


def renumber_build_columns(resolved: ResolvedJoin) -> ResolvedJoin:
    """Return the join with build columns numbered by their positions in the right side instead of in `published`."""
    positions, spec = resolved.published, resolved.spec
    keys = tuple(replace(key, build=positions[key.build]) for key in spec.keys)
    ranges = tuple(replace(pair, build=positions[pair.build]) for pair in spec.ranges)
    return replace(resolved, spec=replace(spec, keys=keys, ranges=ranges))
