"""Finds columns by which a graph can be partitioned into independent parts.

Each stream and each query has a column whose value is equal in all rows that meet in a join, a group or a ROWS window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product

from sparkext.plans.expressions.expression import Expression
from sparkext.plans.expressions.number_types import FLOATS
from sparkext.streaming.cql.language.graph import Graph
from sparkext.streaming.cql.language.queries import Plan, SelectPlan, SetPlan

_MOST_COMBINATIONS = 10_000
"""Maximum number of combinations of one column per stream that are tried."""


@dataclass(frozen=True)
class GraphPartitioning:
    """The partitioning columns of streams and queries.

    `columns[name]`: the index of the column that partitions a stream or the result of a query. None: the result does
    not contain the key, and no query reads the result.
    """

    columns: Mapping[str, int | None]


@dataclass(frozen=True)
class PartitioningObstacle:
    """The reason why a graph cannot be partitioned: a query that combines rows of different keys."""

    query: str
    reason: str
    stage: int = 0
    """The stage that failed: 0 for windows, 1 for joins, 2 for groups."""


def find_partitioning(
    graph: Graph, stream_columns: Mapping[str, int] | None = None
) -> GraphPartitioning | PartitioningObstacle:
    """Return the first partitioning that is possible. `given`: the required columns of streams."""
    names = list(graph.streams)
    choices = []
    for name in names:
        kinds = graph.streams[name].columns
        positions = [position for position, column in enumerate(kinds) if column.type.name not in FLOATS]
        choices.append([stream_columns[name]] if stream_columns is not None else positions)
    furthest: PartitioningObstacle | None = None
    depth = (-1, 0, 0)
    for combination in islice(product(*choices), _MOST_COMBINATIONS):
        partitioning = _derive_partitioning(graph, dict(zip(names, combination, strict=True)))
        if isinstance(partitioning, GraphPartitioning):
            return partitioning
        names_chosen = [
            graph.streams[name].columns[position].name.lower()
            for name, position in zip(names, combination, strict=True)
        ]
        progress = graph.order.index(partitioning.query), partitioning.stage, -len({*names_chosen})
        if progress > depth:
            depth, furthest = progress, partitioning
    if furthest is None:
        name = next(name for name, positions in zip(names, choices, strict=True) if not positions)
        furthest = PartitioningObstacle(graph.order[0], f"stream {name} has no column that can be a key")
    return furthest


def _derive_partitioning(graph: Graph, streams: Mapping[str, int]) -> GraphPartitioning | PartitioningObstacle:
    """Derive the column of each query from the streams' columns; columns on cycles are assumed, then checked."""
    key_columns: dict[str, int | None] = dict(streams)
    for _ in range(len(graph.queries) + 1):
        before = dict(key_columns)
        for name in graph.order:
            key_column = _find_key_column(graph, graph.queries[name].plan, name, key_columns)
            if isinstance(key_column, PartitioningObstacle):
                return key_column
            if not isinstance(key_column, _UnknownKey):
                key_columns[name] = key_column
        if key_columns == before:
            break
    for name in graph.order:
        if name not in key_columns:
            return PartitioningObstacle(name, "no key can be derived for it")
        key_column = _find_key_column(graph, graph.queries[name].plan, name, key_columns)
        if isinstance(key_column, PartitioningObstacle):
            return key_column
        if key_column != key_columns[name]:
            return PartitioningObstacle(name, "its key is in different columns in different parts of it")
    return GraphPartitioning(key_columns)


class _UnknownKey:
    """The key columns of all inputs are still unknown."""


_OPEN = _UnknownKey()


def _find_key_column(
    graph: Graph, plan: Plan, name: str, key_columns: Mapping[str, int | None]
) -> int | PartitioningObstacle | _UnknownKey | None:
    if isinstance(plan, SetPlan):
        sides = [_find_key_column(graph, side, name, key_columns) for side in (plan.left, plan.right)]
        for side in sides:
            if isinstance(side, PartitioningObstacle):
                return side
        known_columns = [side for side in sides if side is not _OPEN]
        if not known_columns:
            return _OPEN
        if any(side != known_columns[0] for side in known_columns):
            return PartitioningObstacle(name, f"the two sides of {plan.op.upper()} have the key in different columns")
        if known_columns[0] is None and not (plan.op == "union" and plan.all):
            return PartitioningObstacle(name, f"{plan.op.upper()} compares rows of all keys")
        return known_columns[0]
    return _find_select_key_column(plan, name, key_columns)


def _find_select_key_column(
    plan: SelectPlan, name: str, key_columns: Mapping[str, int | None]
) -> int | PartitioningObstacle | _UnknownKey | None:
    positions: list[tuple[int, int]] = []
    for number, read in enumerate(plan.inputs):
        if read.name not in key_columns:
            continue
        position = key_columns[read.name]
        if position is None:
            return PartitioningObstacle(name, f"it reads {read.name}, whose columns do not include the key")
        if read.window is not None and read.window.kind == "rows" and position not in read.window.partition:
            key = read.columns[position].name
            window = read.window.spelled(read.columns)
            return PartitioningObstacle(
                name, f"{window} of {read.name} counts rows of all keys: add PARTITION BY {key}"
            )
        positions.append((number, position))
    if not positions:
        return _OPEN
    equal = _find_equal_columns(positions[0], plan)
    for number, position in positions[1:]:
        if (number, position) not in equal:
            first, second = plan.inputs[positions[0][0]], plan.inputs[number]
            return PartitioningObstacle(
                name,
                f"it does not join {first.name} and {second.name} by {first.columns[positions[0][1]].name} ="
                f" {second.columns[position].name}",
                1,
            )
    outputs = plan.outputs
    if plan.group is not None:
        keys = [position for position, key in enumerate(plan.group) if _locate_column(key) in equal]
        if not keys:
            return PartitioningObstacle(name, "it aggregates rows of all keys", 2)
        outputs_with_key = [
            position for position, output in enumerate(outputs) if _locate_column(output) in [(0, key) for key in keys]
        ]
    else:
        outputs_with_key = [position for position, output in enumerate(outputs) if _locate_column(output) in equal]
    if not outputs_with_key:
        return PartitioningObstacle(name, "it compares rows of all keys") if plan.distinct else None
    return outputs_with_key[0]


def _find_equal_columns(start: tuple[int, int], plan: SelectPlan) -> set[tuple[int, int]]:
    """Return a column and all columns that conditions set equal to it."""
    pairs = [pair for condition in plan.where for pair in _find_equal_pairs(condition)]
    equal = {start}
    while True:
        more = {right for left, right in pairs if left in equal} | {left for left, right in pairs if right in equal}
        if more <= equal:
            return equal
        equal |= more


def _find_equal_pairs(condition: Expression) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    if condition.op == "=":
        left, right = map(_locate_column, condition.args)
        if left is not None and right is not None:
            yield left, right


def _locate_column(expression: Expression) -> tuple[int, int] | None:
    return (expression.source, expression.column) if expression.op == "column" else None
