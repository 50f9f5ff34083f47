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

_MOST = 10_000
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
    """The reason why a graph cannot be partitioned: a query in which rows of all keys meet, and how."""

    query: str
    reason: str
    stage: int = 0
    """The stage that failed: 0 for windows, 1 for joins, 2 for groups."""


def find_partitioning(graph: Graph, given: Mapping[str, int] | None = None) -> GraphPartitioning | PartitioningObstacle:
    """Return the first partitioning that is possible. `given`: the required columns of streams."""
    names = list(graph.streams)
    choices = []
    for name in names:
        kinds = graph.streams[name].columns
        places = [place for place, one in enumerate(kinds) if one.type.name not in FLOATS]
        choices.append([given[name]] if given is not None else places)
    furthest: PartitioningObstacle | None = None
    depth = (-1, 0, 0)
    for chosen in islice(product(*choices), _MOST):
        found = _derive_partitioning(graph, dict(zip(names, chosen, strict=True)))
        if isinstance(found, GraphPartitioning):
            return found
        called = [graph.streams[name].columns[place].name.lower() for name, place in zip(names, chosen, strict=True)]
        at = graph.order.index(found.query), found.stage, -len({*called})
        if at > depth:
            depth, furthest = at, found
    if furthest is None:
        name = next(name for name, places in zip(names, choices, strict=True) if not places)
        furthest = PartitioningObstacle(graph.order[0], f"stream {name} has no column that can be a key")
    return furthest


def _derive_partitioning(graph: Graph, streams: Mapping[str, int]) -> GraphPartitioning | PartitioningObstacle:
    """Derive the column of each query from the streams' columns; columns on cycles are assumed, then checked."""
    known: dict[str, int | None] = dict(streams)
    for _ in range(len(graph.queries) + 1):
        before = dict(known)
        for name in graph.order:
            found = _find_key_column(graph, graph.queries[name].plan, name, known)
            if isinstance(found, PartitioningObstacle):
                return found
            if not isinstance(found, _UnknownKey):
                known[name] = found
        if known == before:
            break
    for name in graph.order:
        if name not in known:
            return PartitioningObstacle(name, "no key can be derived for it")
        found = _find_key_column(graph, graph.queries[name].plan, name, known)
        if isinstance(found, PartitioningObstacle):
            return found
        if found != known[name]:
            return PartitioningObstacle(name, "its key is in different columns in different parts of it")
    return GraphPartitioning(known)


class _UnknownKey:
    """The key columns of all inputs are still unknown."""


_OPEN = _UnknownKey()


def _find_key_column(
    graph: Graph, plan: Plan, name: str, known: Mapping[str, int | None]
) -> int | PartitioningObstacle | _UnknownKey | None:
    if isinstance(plan, SetPlan):
        sides = [_find_key_column(graph, side, name, known) for side in (plan.left, plan.right)]
        for side in sides:
            if isinstance(side, PartitioningObstacle):
                return side
        told = [side for side in sides if side is not _OPEN]
        if not told:
            return _OPEN
        if any(side != told[0] for side in told):
            return PartitioningObstacle(name, f"the two sides of {plan.op.upper()} have the key in different columns")
        if told[0] is None and not (plan.op == "union" and plan.all):
            return PartitioningObstacle(name, f"{plan.op.upper()} compares rows of all keys")
        return told[0]
    return _find_select_key_column(plan, name, known)


def _find_select_key_column(
    plan: SelectPlan, name: str, known: Mapping[str, int | None]
) -> int | PartitioningObstacle | _UnknownKey | None:
    places: list[tuple[int, int]] = []
    for number, read in enumerate(plan.inputs):
        if read.name not in known:
            continue
        place = known[read.name]
        if place is None:
            return PartitioningObstacle(name, f"it reads {read.name}, whose columns do not include the key")
        if read.window is not None and read.window.kind == "rows" and place not in read.window.partition:
            key = read.columns[place].name
            window = read.window.spelled(read.columns)
            return PartitioningObstacle(
                name, f"{window} of {read.name} counts rows of all keys: add PARTITION BY {key}"
            )
        places.append((number, place))
    if not places:
        return _OPEN
    equal = _find_equal_columns(places[0], plan)
    for number, place in places[1:]:
        if (number, place) not in equal:
            one, two = plan.inputs[places[0][0]], plan.inputs[number]
            return PartitioningObstacle(
                name,
                f"it does not join {one.name} and {two.name} by {one.columns[places[0][1]].name} ="
                f" {two.columns[place].name}",
                1,
            )
    outputs = plan.outputs
    if plan.group is not None:
        keys = [place for place, key in enumerate(plan.group) if _locate_column(key) in equal]
        if not keys:
            return PartitioningObstacle(name, "it aggregates rows of all keys", 2)
        found = [place for place, output in enumerate(outputs) if _locate_column(output) in [(0, key) for key in keys]]
    else:
        found = [place for place, output in enumerate(outputs) if _locate_column(output) in equal]
    if not found:
        return PartitioningObstacle(name, "it compares rows of all keys") if plan.distinct else None
    return found[0]


def _find_equal_columns(place: tuple[int, int], plan: SelectPlan) -> set[tuple[int, int]]:
    """Return a column and all columns that conditions set equal to it."""
    pairs = [pair for condition in plan.where for pair in _find_equal_pairs(condition)]
    found = {place}
    while True:
        more = {two for one, two in pairs if one in found} | {one for one, two in pairs if two in found}
        if more <= found:
            return found
        found |= more


def _find_equal_pairs(condition: Expression) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    if condition.op == "=":
        one, two = map(_locate_column, condition.args)
        if one is not None and two is not None:
            yield one, two


def _locate_column(expression: Expression) -> tuple[int, int] | None:
    return (expression.source, expression.column) if expression.op == "column" else None
