"""Load table of a stage whose rows stream through it: the load balancer decides by it (`docs/papers.md` 5).

The load table is a `Board` in the code.

    tasks that route rows ──rows per bucket──▶ load table ◀──rows and seconds per bucket── partitions
              ▲                                    │
              └───────── routing table ────────────┤
                                                   ◀──proposal── the task that finds an interval expired

All tasks that route rows share one load table, and any of them may act as the load balancer (`Foreman` in the code): it
judges an interval, and proposes the routing table of the next. The first of several proposals for one interval is
accepted, so there is one sequence of routing tables. A partition (`slot`) fetches the build rows of a bucket (`line`)
when the first probe rows of the bucket arrive. Build rows do not change, so tasks may route by different tables, as
long as each probe row goes to one partition.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkext.plans.shuffle.balancer import Foreman
from sparkext.plans.shuffle.routing import RoutingTable, Slots

INTERVAL_SECONDS = 0.5
"""The time over which loads are collected before they are judged."""

THRESHOLD = 0.2
"""The skew above which buckets are moved (α)."""

_MADE_UP_FOR = 0.25
"""Fraction of a partition's past excess load to compensate in the next interval. Compensating all of it would move
buckets to and fro."""

_WEIGHT_OF_BEFORE = 0.5
"""Weight of the buckets' costs in earlier intervals: a single interval has few blocks of each bucket."""


@dataclass
class Told:
    """A task's report since it began: the rows routed or joined, and the seconds spent, by bucket."""

    rows: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)

    def count(self, line: int, rows: int) -> None:
        """Count more rows of a bucket."""
        self.rows[line] = self.rows.get(line, 0) + rows

    def spend(self, line: int, seconds: float) -> None:
        """Count more seconds for a bucket."""
        self.seconds[line] = self.seconds.get(line, 0.0) + seconds

    def to_json(self) -> str:
        """Serialise; `from_data` reads it back."""
        return json.dumps(vars(self))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Told:
        """Read what `to_json` wrote."""
        return cls(by_line(data["rows"]), by_line(data["seconds"]))


@dataclass(frozen=True)
class Interval:
    """An interval with one routing table, given by its `moved` buckets. `routed`: rows per bucket routed before it.

    `judged`: the load of each partition in the previous interval. `done`: its load in all previous intervals. Both are
    empty in the first interval. `costs`: the seconds per bucket by which the table was planned: the costs of the
    previous interval, plus the costs of earlier intervals with decreasing weight.
    """

    number: int = 0
    moved: Mapping[int, Slots] = field(default_factory=dict)
    routed: Mapping[int, int] = field(default_factory=dict)
    judged: tuple[float, ...] = ()
    costs: Mapping[int, float] = field(default_factory=dict)
    done: tuple[float, ...] = ()

    def to_json(self) -> str:
        """Serialise; `from_data` reads it back."""
        return json.dumps(vars(self))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Interval:
        """Read what `to_json` wrote."""
        moved = {line: tuple(slots) for line, slots in by_line(data["moved"]).items()}
        return cls(
            data["number"],
            moved,
            by_line(data["routed"]),
            tuple(data["judged"]),
            by_line(data["costs"]),
            tuple(data["done"]),
        )


@dataclass(frozen=True)
class Board:
    """The current interval, its `seconds` so far, and the stage's reports of `routed` and `joined` rows."""

    interval: Interval
    seconds: float
    routed: Told = field(default_factory=Told)
    joined: Told = field(default_factory=Told)

    @classmethod
    def from_json(cls, text: str) -> Board:
        """Read a load table from the JSON that the driver writes."""
        data = json.loads(text)
        interval = Interval.from_data(data["interval"]) if data["interval"] else Interval()
        return cls(interval, data["seconds"], Told.from_data(data["routes"]), Told.from_data(data["slots"]))

    @property
    def is_over(self) -> bool:
        """Whether the interval can be judged: it has lasted long enough, and joined rows show the cost of a row."""
        return self.seconds >= INTERVAL_SECONDS and bool(self.joined.rows)

    def costs(self) -> Mapping[int, float]:
        """Return the seconds that partitions need for the rows of each bucket routed in this interval.

        The load of a bucket is L = N · T (Yasui et al.): its rows, times the seconds per row. T is measured for each
        bucket, as the work to receive, compare and produce rows differs between buckets. The seconds worked in the
        interval would be a worse measure: they do not include rows in flight, and an overloaded partition works no
        longer than other partitions.
        """
        rows, seconds = self.joined.rows, self.joined.seconds
        mean = sum(seconds.values()) / max(1, sum(rows.values()))
        before = self.interval.routed
        return {
            line: (routed - before.get(line, 0)) * (seconds.get(line, 0.0) / rows[line] if rows.get(line) else mean)
            for line, routed in self.routed.rows.items()
        }


def by_line(data: Mapping[str, Any]) -> dict[int, Any]:
    """Return a mapping read from JSON, with its keys converted back to integers."""
    return {int(line): value for line, value in data.items()}


def loads_of(table: RoutingTable, costs: Mapping[int, float]) -> list[dict[int, float]]:
    """Return, for each partition of a table, the seconds for each of its buckets."""
    return [
        {line: costs[line] / len(table.slots_of(line)) for line in table.lines_of(slot) if costs.get(line)}
        for slot in range(table.slots)
    ]


def judged(board: Board, lines: int, slots: int) -> Interval:
    """Return the next interval, with the table that the load balancer plans from the costs of buckets.

    A partition whose load in all intervals so far is above the mean gets less in the next interval, as the stage ends
    only when its last partition does.
    """
    before = board.interval
    table = RoutingTable(lines, slots, before.moved, before.number)
    now = board.costs()
    costs = {
        line: now.get(line, 0.0) + _WEIGHT_OF_BEFORE * before.costs.get(line, 0.0) for line in {*now, *before.costs}
    }
    of_interval = _totals(loads_of(table, now))
    done = _added(before.done or (0.0,) * slots, of_interval)
    ahead = [_MADE_UP_FOR * (load - sum(done) / slots) for load in done]
    expected = loads_of(table, costs)
    planned = Foreman(THRESHOLD).plan(table, _added(_totals(expected), ahead), expected.__getitem__)
    return Interval(before.number + 1, planned.moved, board.routed.rows, of_interval, costs, done)


def drawn(board: Board, lines: int, slots: int) -> Interval:
    """Return a next interval with a random table, for tests: half of the buckets get one to three random partitions."""
    moved = {
        line: tuple(random.sample(range(slots), random.randint(1, min(slots, 3))))
        for line in range(lines)
        if random.random() < 1 / 2
    }
    return Interval(board.interval.number + 1, moved, board.routed.rows, (0.0,) * slots)


def _added(some: Iterable[float], others: Iterable[float]) -> tuple[float, ...]:
    return tuple(one + other for one, other in zip(some, others, strict=True))


def _totals(loads: Iterable[Mapping[int, float]]) -> tuple[float, ...]:
    return tuple(sum(lines.values()) for lines in loads)
