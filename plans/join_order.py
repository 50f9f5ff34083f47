"""In which order the joins of a pipeline run, and which of them say beforehand what a build side need not give.

Every join but those that emit unmatched build rows makes of each row, whatever comes before and after it, a number of
longer rows; so two joins of which neither looks at the other's build side may change places. The order with the least
cost by what each join keeps is found among all that are possible (Selinger et al., "Access path selection in a
relational database management system", 1979: the best order of a set of joins extends the best of a smaller set).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from sparkext.plans.spec import PROBE, JoinSpec, PipelineSpec
from sparkext.plans.theta import PythonPredicate

_SEARCHED = 10
"""Of so many joins all orders are compared, by their sets, of which there are 1,024."""
_OUTPUT_COST = 0.3
"""What a row that comes out costs of what it takes to look one up; measured in TPC-DS 72: 10 ns of 30."""
_WORTH_IT = 0.9
"""An order that costs no less than this share of the query's own is left: estimates err."""


@dataclass(frozen=True)
class JoinEstimate:
    """One join: how many rows it makes of one, what looking one up costs, and which joins it has to come after."""

    kept: float
    cost: float
    needs: frozenset[int]


def may_move(join: JoinSpec) -> bool:
    """Return whether a join may change places with others.

    One that emits unmatched build rows is the first, and what may fail has to see the rows that come to it in the
    query, no fewer and no more.
    """
    if join.preserves_build or join.may_fail or isinstance(join.theta, PythonPredicate):
        return False
    return join.condition is None or not join.condition.may_fail


def movable(spec: PipelineSpec) -> int:
    """Return how many joins at the beginning may change places: those before the first that may not."""
    return next((number for number, join in enumerate(spec.joins) if not may_move(join)), len(spec.joins))


def needed(spec: PipelineSpec) -> list[frozenset[int]]:
    """Return for each join the numbers of the joins whose build sides it looks at, but for its own."""
    return [
        frozenset(source - 1 for source, _ in join.references(number) if source not in (PROBE, number))
        for number, join in enumerate(spec.joins, 1)
    ]


def reducers(spec: PipelineSpec, number: int) -> tuple[int, ...]:
    """Return the joins that drop rows for what they have of build side `number` alone.

    A row of it that one of them drops is in no result, so it may be left out beforehand (Bernstein & Chiu, "Using
    semi-joins to solve relational queries", 1981). Only of an inner join: an outer one emits something in its place.
    """
    free = movable(spec)
    join = spec.joins[number]
    # The nearest row is the nearest of all.
    if number >= free or join.how != "inner" or join.as_of is not None or join.theta is not None:
        return ()
    own = needed(spec)
    return tuple(
        other
        for other, behind in enumerate(spec.joins[:free])
        if behind.how in ("inner", "semi", "anti") and behind.theta is None and behind.as_of is None
        if own[other] == {number} and all(source != PROBE for source, _ in behind.references(other + 1))
    )


def given(count: int) -> tuple[int, ...]:
    """Return the query's own order."""
    return tuple(range(count))


def cheapest(joins: Sequence[JoinEstimate]) -> tuple[int, ...]:
    """Return the order that costs least, or the given one where none costs clearly less."""
    best = _searched(joins) if len(joins) <= _SEARCHED else _greedy(joins)
    own = given(len(joins))
    return best if cost(joins, best) < _WORTH_IT * cost(joins, own) else own


def cost(joins: Sequence[JoinEstimate], order: Sequence[int]) -> float:
    """Return what joining one row costs in this order."""
    total, rows = 0.0, 1.0
    for number in order:
        total += rows * _step(joins[number])
        rows *= joins[number].kept
    return total


def shuffled(needs: Sequence[frozenset[int]], seed: int) -> tuple[int, ...]:
    """Return some order in which every join comes after those that it needs."""
    generator = random.Random(seed)
    order: list[int] = []
    while len(order) < len(needs):
        order.append(generator.choice(_next(needs, frozenset(order))))
    return tuple(order)


def has_choice(needs: Sequence[frozenset[int]]) -> bool:
    """Return whether there is an order beside the given one."""
    return any(number - 1 not in needs[number] for number in range(1, len(needs)))


def _searched(joins: Sequence[JoinEstimate]) -> tuple[int, ...]:
    """Extend the cheapest order of every set of joins that can come first by each join that can come next."""
    needs = [join.needs for join in joins]
    sets: dict[frozenset[int], tuple[float, tuple[int, ...], float]] = {frozenset(): (0.0, (), 1.0)}
    for _ in joins:
        larger: dict[frozenset[int], tuple[float, tuple[int, ...], float]] = {}
        for done, (spent, order, rows) in sets.items():
            for number in _next(needs, done):
                extended = (spent + rows * _step(joins[number]), (*order, number), rows * joins[number].kept)
                key = done | {number}
                if key not in larger or extended < larger[key]:
                    larger[key] = extended
        sets = larger
    ((_, order, _),) = sets.values()
    return order


def _greedy(joins: Sequence[JoinEstimate]) -> tuple[int, ...]:
    """Take next what drops the most rows for what it costs."""
    order: list[int] = []
    while len(order) < len(joins):
        following = _next([join.needs for join in joins], frozenset(order))
        order.append(min(following, key=lambda number: (joins[number].kept - 1.0) / _step(joins[number])))
    return tuple(order)


def _step(join: JoinEstimate) -> float:
    return join.cost + _OUTPUT_COST * join.kept


def _next(needs: Sequence[frozenset[int]], done: frozenset[int]) -> list[int]:
    return [number for number, before in enumerate(needs) if number not in done and before <= done]
