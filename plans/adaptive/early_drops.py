"""Semi-join reductions of build sides: joins whose keys rule out rows of another join's build side.

    lineitem ─▶ part (green) on l_partkey = p_partkey ─▶ partsupp on l_partkey = ps_partkey AND l_suppkey = ps_suppkey

A row of lineitem finds rows of partsupp by its l_partkey, which also has to be a p_partkey. So rows of partsupp with
any other ps_partkey need neither be stored nor indexed. This is the semi-join reduction of Bernstein & Chiu ("Using
semi-joins to solve relational queries", 1981), run while a build side is materialised. (`join_order.find_reducers`
returns the joins that reduce an existing build side.) In each of three cases a build row without a match among the
dropping join's build keys is in no result:

- the dropping join looks up the build row's own columns, and the build row's join is inner;
- the build row is looked up by the same probe columns as the dropping join's keys, so each probe row that finds it is
  dropped;
- the build row is looked up by the dropping join's own build keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkext.plans.adaptive.join_order import count_movable
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.expressions.key_types import MOST_DECIMAL_DIGITS
from sparkext.plans.expressions.number_types import FLOATS
from sparkext.plans.pipeline.aggregates import AggregateCall, Aggregation
from sparkext.plans.pipeline.projection import Projection
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, PipelineSpec

_NEVER_FAILING = ("count", "min", "max")
_SUMS = ("sum", "avg")
_SUM_DIGITS = 10


@dataclass(frozen=True)
class EarlyDrop:
    """Join `by` (its index) drops the build rows whose `columns`, in the order of its keys, match none of its rows."""

    by: int
    columns: tuple[int, ...]


def find_early_drops(spec: PipelineSpec, number: int) -> tuple[EarlyDrop, ...]:
    """Return the joins that drop rows of build side `number` by their keys."""
    free = count_movable(spec)
    join = spec.joins[number]
    if number >= free or join.as_of is not None:
        return ()
    drops = []
    for other, dropping in enumerate(spec.joins[:free]):
        if other == number or not _drops_by_keys(dropping):
            continue
        columns = [
            _find_compared_column(join, number + 1, dropping, other + 1, key) for key in range(len(dropping.keys))
        ]
        compared = tuple(column for column in columns if column is not None)
        if len(compared) == len(columns):
            drops.append(EarlyDrop(other, compared))
    return tuple(drops)


def _drops_by_keys(join: JoinSpec) -> bool:
    plain = all(not key.null_safe and key.probe.otherwise is None for key in join.keys)
    return join.drops_unmatched and bool(join.keys) and plain and join.as_of is None


def _find_compared_column(
    join: JoinSpec, source: int, dropping: JoinSpec, dropping_source: int, number: int
) -> int | None:
    """Return the column of build side `source` that has to equal key `number` of the dropping join, if there is one."""
    key = dropping.keys[number]
    if key.probe.source == source:
        return key.probe.column if join.how == "inner" else None
    lookup_columns = (key.probe, ColumnRef(dropping_source, key.build))
    return next(
        (
            pair.build
            for pair in join.keys
            if pair.probe in lookup_columns and pair.type == key.type and not pair.null_safe
        ),
        None,
    )


def trace_columns(spec: PipelineSpec, projection: Projection, columns: tuple[int, ...]) -> tuple[ColumnRef, ...] | None:
    """Return the source columns of columns of a projection, if pipeline rows may be dropped by their values.

    None if a column is computed, or if dropping a row could suppress an error that the row causes.
    """
    if count_movable(spec) < len(spec.joins) or spec.top is not None or has_failing_expressions(spec, projection):
        return None
    if not all(_never_fails(call) for aggregation in spec.aggregations for call in aggregation.calls):
        return None
    emitted = _list_group_columns(spec.aggregations) if spec.aggregations else spec.outputs
    projected = [projection.columns[column] for column in columns]
    if any(column.op != "column" or column.column >= len(emitted) for column in projected):
        return None
    references = tuple(emitted[column.column] for column in projected)
    if any(
        reference is None or reference.otherwise is not None or _is_flag(spec, reference) for reference in references
    ):
        return None
    return tuple(reference for reference in references if reference is not None)


def has_failing_expressions(spec: PipelineSpec, projection: Projection) -> bool:
    """Return whether an expression of a pipeline may fail."""
    computed: list[Expression] = [*projection.columns]
    computed += [test for test in (spec.filter, projection.filter) if test is not None]
    for aggregation in spec.aggregations:
        computed += aggregation.expressions()
    return any(expression.may_fail for expression in computed)


def _never_fails(call: AggregateCall) -> bool:
    """Return whether no values overflow. A sum of decimals has ten digits more than its argument."""
    if call.function in _NEVER_FAILING:
        return True
    if call.function not in _SUMS or call.argument is None or call.argument.type is None:
        return False
    kind = call.argument.type
    return kind.name in FLOATS or (kind.name == "decimal" and kind.precision + _SUM_DIGITS <= MOST_DECIMAL_DIGITS)


def _list_group_columns(aggregations: tuple[Aggregation, ...]) -> tuple[ColumnRef | None, ...]:
    """Return the group columns, None for a computed one: a drop by their values removes all rows of a group.

    Empty if there are several groupings.
    """
    if len(aggregations) > 1:
        return ()
    return tuple(ColumnRef(key.source, key.column) if key.op == "column" else None for key in aggregations[0].keys)


def _is_flag(spec: PipelineSpec, reference: ColumnRef) -> bool:
    return reference.source != PROBE and spec.joins[reference.source - 1].how == "existence"


def has_value_tests(test: Expression | None) -> bool:
    """Return whether a filter contains a test other than IS NOT NULL."""
    if test is None:
        return False
    if test.op == "and":
        return any(map(has_value_tests, test.args))
    return not (test.op == "not" and test.args[0].op == "is_null")


def append_drops(spec: PipelineSpec, drops: tuple[JoinSpec, ...]) -> tuple[PipelineSpec, list[int]]:
    """Return a pipeline with the semi-joins `drops` appended, and an order that runs each as early as possible."""
    extended = PipelineSpec(
        spec.probe_columns,
        (*spec.joins, *drops),
        spec.outputs,
        filter=spec.filter,
        aggregations=spec.aggregations,
    )
    count, order = len(spec.joins), list[int]()
    for number in range(-1, count):
        if number >= 0:
            order.append(number)
        done = {PROBE, *(index + 1 for index in order)}
        for drop, join in enumerate(drops, count):
            if drop not in order and done.issuperset(source for source, _ in join.references(drop + 1)):
                order.append(drop)
    return extended, order
