"""The meaning of a graph of queries, instant by instant: complete histories and relations, without incremental state.

An instant is (t, e): a timestamp in µs, and the number of ε after it. Rows are tuples, null is None.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from sparkext.plans.expressions.expression import Expression
from sparkext.streaming.cql.language.graph import Graph
from sparkext.streaming.cql.language.queries import Aggregate, BoundQuery, BoundWindow, Plan, SelectPlan, SetPlan
from tests.oracle.expressions import Failure, evaluate

Instant = tuple[int, int]
Row = tuple[Any, ...]


def run_graph(
    graph: Graph,
    inputs: Mapping[str, Sequence[tuple[int, Row]]],
    until: int | None = None,
    most: int = 100_000,
    serial: Sequence[tuple[int, str, Row]] = (),
) -> dict[str, list[tuple[int, Row]]]:
    """Return the rows that each stream query emits up to `until`, with their timestamps.

    Rows of `inputs` are in time order. Rows of `serial`, from all streams, are processed one by one, each after
    everything else at its time is final.
    """
    return Interpreter(graph, inputs, serial).run(until, most)


class Interpreter:
    def __init__(
        self, graph: Graph, inputs: Mapping[str, Sequence[tuple[int, Row]]], serial: Sequence[tuple[int, str, Row]]
    ) -> None:
        self.graph, self.serial = graph, [*serial]
        self.history: dict[str, list[tuple[Instant, Row]]] = {
            name: [((t, 0), row) for t, row in inputs.get(name, ())] for name in graph.streams
        }
        for name, query in graph.queries.items():
            if query.operator is not None:
                self.history[name] = []
        self.relations: dict[str, list[Row]] = {name: [] for name in graph.queries}

    def run(self, until: int | None, most: int) -> dict[str, list[tuple[int, Row]]]:
        now: Instant = (-(1 << 62), 0)
        for _ in range(most):
            following = [instant for instant in self.instants(now) if instant > now]
            if self.serial:
                t, name, row = self.serial[0]
                if not following or min(following)[0] > t or (min(following) == (t, 0) and now < (t, 0)):
                    at = max((t, 0), (now[0], now[1] + 1))
                    self.history[name].append((at, row))
                    self.serial.pop(0)
                    following.append(at)
            if not following or (until is not None and min(following)[0] > until):
                break
            now = min(following)
            for name in self.graph.order:
                self.work(self.graph.queries[name], now)
        else:
            raise AssertionError("it goes on and on")
        return {
            name: [(t, row) for (t, e), row in self.history[name] if (t, e) <= now]
            for name, query in self.graph.queries.items()
            if query.operator is not None
        }

    def instants(self, now: Instant) -> Iterator[Instant]:
        """Yield the instants at which something may change. Superfluous instants are harmless."""
        for name, rows in self.history.items():
            for instant, _ in rows:
                yield instant
                for window in self.windows(name):
                    yield from ends(window, instant)
        for name, query in self.graph.queries.items():
            if query.period is not None and self.relations[name]:
                yield (now[0] // query.period + 1) * query.period, 0

    def windows(self, name: str) -> Iterator[BoundWindow]:
        for query in self.graph.queries.values():
            for select in query.selects():
                for read in select.inputs:
                    if read.name == name and read.window is not None:
                        yield read.window

    def work(self, query: BoundQuery, now: Instant) -> None:
        before, after = self.relations[query.name], self.relation(query.plan, now)
        if query.recursive:
            self.relations[query.name] = []
            after = distinct(self.relation(query.plan, now))
            while {*map(same, after)} != {*map(same, self.relations[query.name])}:
                self.relations[query.name] = after
                after = distinct(self.relation(query.plan, now))
        self.relations[query.name] = after
        if query.operator is None:
            return
        if query.operator == "rstream":
            due = query.period is None or (now[1] == 0 and now[0] % query.period == 0)
            emitted = after if due else []
        elif query.operator == "istream":
            emitted = difference(after, before)
        else:
            emitted = difference(before, after)
        t, e = now
        at = now if query.delay is None else (t, e + 1) if query.delay == 0 else (t + query.delay, e)
        self.history[query.name] += [(at, row) for row in sorted(emitted, key=in_order)]

    def relation(self, plan: Plan, now: Instant) -> list[Row]:
        if isinstance(plan, SetPlan):
            return together(plan, self.relation(plan.left, now), self.relation(plan.right, now))
        inputs = [
            self.relations[read.name] if read.window is None else self.window(read.name, read.window, now)
            for read in plan.inputs
        ]
        joined = [dict[tuple[int, int], Any]()]
        for source, rows in enumerate(inputs):
            joined = [
                {**one, **{(source, place): value for place, value in enumerate(row)}} for one in joined for row in rows
            ]
        rows = [one for one in joined if all(value_of(test, one) is True for test in plan.where)]
        if plan.group is not None:
            rows = grouped(plan, rows)
        made = [tuple(value_of(output, one) for output in plan.outputs) for one in rows]
        return distinct(made) if plan.distinct else made

    def window(self, name: str, window: BoundWindow, now: Instant) -> list[Row]:
        rows = [(instant, row) for instant, row in self.history[name] if instant <= now]
        if window.kind == "now":
            return [row for instant, row in rows if instant == now]
        if window.kind == "unbounded":
            return [row for _, row in rows]
        if window.kind == "range":
            if window.slide:
                edge = now[0] // window.slide * window.slide
                return [row for (t, _), row in rows if edge - window.amount <= t <= edge]
            return [row for (t, e), row in rows if (t, e) >= (now[0] - window.amount, now[1])]
        if window.slide:
            rows = rows[: len(rows) // window.slide * window.slide]
        parts: dict[Row, list[Row]] = {}
        for _, row in rows:
            parts.setdefault(same(tuple(row[place] for place in window.partition)), []).append(row)
        return [row for part in parts.values() for row in part[-window.amount :]]


def ends(window: BoundWindow, instant: Instant) -> Iterator[Instant]:
    """Yield the instants at which a row leaves or enters a window."""
    t, e = instant
    if window.kind == "now":
        yield t, e + 1
    elif window.kind == "range" and not window.slide:
        yield t + window.amount, e + 1
    elif window.kind == "range":
        yield -(-t // window.slide) * window.slide, 0
        yield ((t + window.amount) // window.slide + 1) * window.slide, 0


def value_of(node: Expression, row: Mapping[tuple[int, int], Any]) -> Any:
    """Return the value of an expression like `evaluate`, but null for each part that fails."""
    if not node.may_fail:
        return evaluate(node, dict(row))
    given, args = dict(row), []
    for place, argument in enumerate(node.args):
        if argument.may_fail:
            given[-1, place] = value_of(argument, row)
            argument = Expression("column", argument.type, source=-1, column=place)
        args.append(argument)
    try:
        return evaluate(replace(node, args=tuple(args)), given)
    except Failure:
        return None


def exact(row: Row) -> Row:
    """Return an identity of a row: 0.0 differs from -0.0, and all NaNs are equal."""
    return tuple(
        ("float", struct.pack("<d", math.nan if one != one else one)) if isinstance(one, float) else one for one in row
    )


def same(row: Row) -> Row:
    """Return a key of a row: 0.0 equals -0.0, and all NaNs are equal."""
    return tuple("NaN" if isinstance(one, float) and one != one else one for one in row)


def normal(row: Row) -> Row:
    return tuple(one + 0.0 if isinstance(one, float) else one for one in row)


def in_order(row: Row) -> tuple[Any, ...]:
    """Return a sort key: by the first column, then the next; nulls first, NaN last."""
    keys = []
    for one in row:
        if isinstance(one, float):
            keys.append((one is not None, one != one, 0.0 if one != one else one, math.copysign(1.0, one)))
        else:
            keys.append((one is not None, one if one is not None else 0))
    return tuple(keys)


def difference(rows: Iterable[Row], less: Iterable[Row]) -> list[Row]:
    left = Counter(map(exact, less))
    found = []
    for row in rows:
        if left[exact(row)] > 0:
            left[exact(row)] -= 1
        else:
            found.append(row)
    return found


def distinct(rows: Iterable[Row]) -> list[Row]:
    return list({same(row): normal(row) for row in rows}.values())


def together(plan: SetPlan, left: list[Row], right: list[Row]) -> list[Row]:
    if plan.op == "union":
        return [*left, *right] if plan.all else distinct([*left, *right])
    there = Counter(map(same, right))
    if not plan.all:
        return [row for row in distinct(left) if (there[same(row)] > 0) == (plan.op == "intersect")]
    found = []
    for row in map(normal, left):
        is_there = there[same(row)] > 0
        there[same(row)] -= is_there
        if is_there == (plan.op == "intersect"):
            found.append(row)
    return found


def grouped(plan: SelectPlan, rows: list[dict[tuple[int, int], Any]]) -> list[dict[tuple[int, int], Any]]:
    assert plan.group is not None
    groups: dict[Row, tuple[Row, list[dict[tuple[int, int], Any]]]] = {}
    for row in rows:
        key = normal(tuple(value_of(one, row) for one in plan.group))
        groups.setdefault(same(key), (key, []))[1].append(row)
    made = []
    for key, members in groups.values():
        values = [*key, *(aggregated(one, members) for one in plan.aggregates)]
        made.append({(0, place): value for place, value in enumerate(values)})
    return [one for one in made if plan.having is None or value_of(plan.having, one) is True]


def aggregated(aggregate: Aggregate, rows: list[dict[tuple[int, int], Any]]) -> Any:
    if aggregate.argument is None:
        return len(rows)
    values = [value for row in rows if (value := value_of(aggregate.argument, row)) is not None]
    if aggregate.distinct:
        values = [row[0] for row in distinct((value,) for value in values)]
    if aggregate.function == "count":
        return len(values)
    if not values:
        return None
    if aggregate.function in ("min", "max"):
        return (min if aggregate.function == "min" else max)(values, key=lambda value: in_order((value,)))
    if isinstance(values[0], float):
        summed = float_sum(values)
        return summed / len(values) if aggregate.function == "avg" else summed
    whole = sum(values)
    if aggregate.function == "avg":
        return float(whole) / len(values)
    return whole if -(1 << 63) <= whole < 1 << 63 else None


def float_sum(values: list[float]) -> float:
    """Return the double that is nearest to the exact sum."""
    ends = {value for value in values if math.isinf(value)}
    if any(math.isnan(value) for value in values) or len(ends) > 1:
        return math.nan
    if ends:
        return ends.pop()
    whole = sum(map(Fraction, values), Fraction(0))
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf
