"""Choice of the join order of a pipeline, and of the joins that reduce a build side beforehand.

Every join except those that emit unmatched build rows turns each row into some number of longer rows, independent of
the joins before and after it. So two joins may change places if neither refers to the other's build side. The cheapest
order by the estimated output of each join is found among all possible orders (Selinger et al., "Access path selection
in a relational database management system", 1979: the best order of a set of joins extends the best order of a smaller
set).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from sparkext.plans.pipeline.spec import PROBE, JoinSpec, PipelineSpec
from sparkext.plans.pipeline.theta import PythonPredicate

_SEARCHED = 10
"""Up to this number of joins, all orders are compared, through the at most 1,024 sets of joins."""
_OUTPUT_COST = 0.3
"""Cost of an output row, relative to the cost of looking up a row; measured in TPC-DS 72: 10 ns of 30."""
_WORTH_IT = 0.9
"""An order replaces the query's own only if it costs less than this share of it: estimates are inexact."""


@dataclass(frozen=True)
class JoinEstimate:
    """One join of an order.

    `kept`: output rows per input row; `cost`: of looking up a row; `needs`: the joins that must run before it.
    """

    kept: float
    cost: float
    needs: frozenset[int]


def may_move(join: JoinSpec) -> bool:
    """Return whether a join may change places with other joins.

    A join that emits unmatched build rows must be the first. A join that may fail must receive exactly the rows that it
    receives in the query's own order.
    """
    if join.preserves_build or join.may_fail or isinstance(join.theta, PythonPredicate):
        return False
    return join.condition is None or not join.condition.may_fail


def count_movable(spec: PipelineSpec) -> int:
    """Return the number of joins before the first join that may not change places."""
    return next((number for number, join in enumerate(spec.joins) if not may_move(join)), len(spec.joins))


def find_prerequisites(spec: PipelineSpec) -> list[frozenset[int]]:
    """Return, for each join, the indexes of the other joins whose build sides it refers to."""
    return [
        frozenset(source - 1 for source, _ in join.references(number) if source not in (PROBE, number))
        for number, join in enumerate(spec.joins, 1)
    ]


def find_reducers(spec: PipelineSpec, number: int) -> tuple[int, ...]:
    """Return the joins that drop rows by columns of build side `number` alone.

    A build row that one of these joins drops is in no result, so it may be removed beforehand: a semi-join reduction
    (Bernstein & Chiu, "Using semi-joins to solve relational queries", 1981). Join `number` must be an inner join: an
    outer join would emit a row with nulls instead.
    """
    free = count_movable(spec)
    join = spec.joins[number]
    # An as-of join finds the nearest of all build rows, so none may be removed.
    if number >= free or join.how != "inner" or join.as_of is not None or join.theta is not None:
        return ()
    prerequisites = find_prerequisites(spec)
    return tuple(
        other
        for other, reducer in enumerate(spec.joins[:free])
        if reducer.how in ("inner", "semi", "anti") and reducer.theta is None and reducer.as_of is None
        if prerequisites[other] == {number} and all(source != PROBE for source, _ in reducer.references(other + 1))
    )


def keep_join_order(count: int) -> tuple[int, ...]:
    """Return the query's own order."""
    return tuple(range(count))


def choose_join_order(joins: Sequence[JoinEstimate]) -> tuple[int, ...]:
    """Return the cheapest order, or the query's own order if no order is clearly cheaper."""
    best = _search_orders(joins) if len(joins) <= _SEARCHED else _order_greedily(joins)
    query_order = keep_join_order(len(joins))
    return best if cost(joins, best) < _WORTH_IT * cost(joins, query_order) else query_order


def cost(joins: Sequence[JoinEstimate], order: Sequence[int]) -> float:
    """Return the cost of joining one probe row in this order."""
    total, rows = 0.0, 1.0
    for number in order:
        total += rows * _estimate_step_cost(joins[number])
        rows *= joins[number].kept
    return total


def draw_join_order(needs: Sequence[frozenset[int]], seed: int) -> tuple[int, ...]:
    """Return a random order in which every join comes after the joins that it needs."""
    generator = random.Random(seed)
    order: list[int] = []
    while len(order) < len(needs):
        order.append(generator.choice(_list_next_joins(needs, frozenset(order))))
    return tuple(order)


def has_choice(needs: Sequence[frozenset[int]]) -> bool:
    """Return whether an order other than the query's own is possible."""
    return any(number - 1 not in needs[number] for number in range(1, len(needs)))


def _search_orders(joins: Sequence[JoinEstimate]) -> tuple[int, ...]:
    """Extend the cheapest order of every set of joins that can come first by each join that can come next."""
    needs = [join.needs for join in joins]
    sets: dict[frozenset[int], tuple[float, tuple[int, ...], float]] = {frozenset(): (0.0, (), 1.0)}
    for _ in joins:
        larger: dict[frozenset[int], tuple[float, tuple[int, ...], float]] = {}
        for done, (spent, order, rows) in sets.items():
            for number in _list_next_joins(needs, done):
                extended = (
                    spent + rows * _estimate_step_cost(joins[number]),
                    (*order, number),
                    rows * joins[number].kept,
                )
                key = done | {number}
                if key not in larger or extended < larger[key]:
                    larger[key] = extended
        sets = larger
    ((_, order, _),) = sets.values()
    return order


def _order_greedily(joins: Sequence[JoinEstimate]) -> tuple[int, ...]:
    """Append, repeatedly, the join that drops the most rows for its cost."""
    order: list[int] = []
    while len(order) < len(joins):
        following = _list_next_joins([join.needs for join in joins], frozenset(order))
        order.append(min(following, key=lambda number: (joins[number].kept - 1.0) / _estimate_step_cost(joins[number])))
    return tuple(order)


def _estimate_step_cost(join: JoinEstimate) -> float:
    return join.cost + _OUTPUT_COST * join.kept


def _list_next_joins(needs: Sequence[frozenset[int]], done: frozenset[int]) -> list[int]:
    return [number for number, prerequisites in enumerate(needs) if number not in done and prerequisites <= done]
