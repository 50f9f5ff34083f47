"""The load table of a stage whose rows stream through it: the load balancer decides by it (`docs/papers.md` 5).

    tasks that route rows ──rows per bucket──▶ load table ◀──rows and seconds per bucket── partitions
              ▲                                    │
              └───────── routing table ────────────┤
                                                   ◀──proposal── the task that finds an interval expired

All tasks that route rows share one load table, and any of them may act as the load balancer: it judges an interval, and
proposes the routing table of the next. The first of several proposals for one interval is accepted, so there is one
sequence of routing tables. A partition fetches the build rows of a bucket when it receives the first probe rows of
the bucket. Build rows do not change, so tasks may route by different tables, as long as each probe row goes to one
partition.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkext.plans.shuffle.balancer import Balancer
from sparkext.plans.shuffle.routing import Partitions, RoutingTable

INTERVAL_SECONDS = 0.5
"""The time over which loads are collected before they are judged."""

THRESHOLD = 0.2
"""The skew above which buckets are moved (α)."""

_COMPENSATED_FRACTION = 0.25
"""Fraction of a partition's past excess load to compensate in the next interval. Compensating all of it would move
buckets to and fro."""

_WEIGHT_OF_EARLIER = 0.5
"""Weight of the buckets' costs in earlier intervals: a single interval has few blocks of each bucket."""


@dataclass
class BucketReport:
    """A task's report since it began: the rows routed or joined, and the seconds spent, by bucket."""

    rows: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)

    def count(self, bucket: int, rows: int) -> None:
        """Count more rows of a bucket."""
        self.rows[bucket] = self.rows.get(bucket, 0) + rows

    def spend(self, bucket: int, seconds: float) -> None:
        """Count more seconds for a bucket."""
        self.seconds[bucket] = self.seconds.get(bucket, 0.0) + seconds

    def to_json(self) -> str:
        """Serialise; `from_data` reads it back."""
        return json.dumps(vars(self))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> BucketReport:
        """Read the result of `to_json`."""
        return cls(parse_bucket_keys(data["rows"]), parse_bucket_keys(data["seconds"]))


@dataclass(frozen=True)
class Interval:
    """An interval with one routing table, given by its `moved` buckets. `routed`: rows per bucket routed before it.

    `judged`: the load of each partition in the previous interval. `done`: its load in all previous intervals. Both are
    empty in the first interval. `costs`: the seconds per bucket by which the table was planned: the costs of the
    previous interval, plus the costs of earlier intervals with decreasing weight.
    """

    number: int = 0
    moved: Mapping[int, Partitions] = field(default_factory=dict)
    routed: Mapping[int, int] = field(default_factory=dict)
    judged: tuple[float, ...] = ()
    costs: Mapping[int, float] = field(default_factory=dict)
    done: tuple[float, ...] = ()

    def to_json(self) -> str:
        """Serialise; `from_data` reads it back."""
        return json.dumps(vars(self))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Interval:
        """Read the result of `to_json`."""
        moved = {bucket: tuple(partitions) for bucket, partitions in parse_bucket_keys(data["moved"]).items()}
        return cls(
            data["number"],
            moved,
            parse_bucket_keys(data["routed"]),
            tuple(data["judged"]),
            parse_bucket_keys(data["costs"]),
            tuple(data["done"]),
        )


@dataclass(frozen=True)
class LoadTable:
    """The current interval, its `seconds` so far, and the stage's reports of `routed` and `joined` rows."""

    interval: Interval
    seconds: float
    routed: BucketReport = field(default_factory=BucketReport)
    joined: BucketReport = field(default_factory=BucketReport)

    @classmethod
    def from_json(cls, text: str) -> LoadTable:
        """Read a load table from the JSON that the driver writes."""
        data = json.loads(text)
        interval = Interval.from_data(data["interval"]) if data["interval"] else Interval()
        return cls(
            interval,
            data["seconds"],
            BucketReport.from_data(data["routes"]),
            BucketReport.from_data(data["partitions"]),
        )

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
        routed_before = self.interval.routed
        return {
            bucket: (routed - routed_before.get(bucket, 0))
            * (seconds.get(bucket, 0.0) / rows[bucket] if rows.get(bucket) else mean)
            for bucket, routed in self.routed.rows.items()
        }


def parse_bucket_keys(data: Mapping[str, Any]) -> dict[int, Any]:
    """Return a mapping read from JSON, with its keys converted back to integers."""
    return {int(bucket): value for bucket, value in data.items()}


def distribute_loads(table: RoutingTable, costs: Mapping[int, float]) -> list[dict[int, float]]:
    """Return, for each partition of a table, the seconds for each of its buckets."""
    return [
        {
            bucket: costs[bucket] / len(table.partitions_of(bucket))
            for bucket in table.buckets_of(partition)
            if costs.get(bucket)
        }
        for partition in range(table.partitions)
    ]


def judged(load_table: LoadTable, buckets: int, partitions: int) -> Interval:
    """Return the next interval, with the table that the load balancer plans from the costs of buckets.

    A partition whose load in all intervals so far is above the mean gets less in the next interval, as the stage ends
    only when its last partition does.
    """
    interval = load_table.interval
    table = RoutingTable(buckets, partitions, interval.moved, interval.number)
    current_costs = load_table.costs()
    costs = {
        bucket: current_costs.get(bucket, 0.0) + _WEIGHT_OF_EARLIER * interval.costs.get(bucket, 0.0)
        for bucket in {*current_costs, *interval.costs}
    }
    interval_loads = _sum_loads(distribute_loads(table, current_costs))
    done = _add_loads(interval.done or (0.0,) * partitions, interval_loads)
    adjustments = [_COMPENSATED_FRACTION * (load - sum(done) / partitions) for load in done]
    expected_loads = distribute_loads(table, costs)
    planned = Balancer(THRESHOLD).plan(
        table, _add_loads(_sum_loads(expected_loads), adjustments), expected_loads.__getitem__
    )
    return Interval(interval.number + 1, planned.moved, load_table.routed.rows, interval_loads, costs, done)


def draw_interval(load_table: LoadTable, buckets: int, partitions: int) -> Interval:
    """Return a next interval with a random table, for tests: half of the buckets get one to three random partitions."""
    moved = {
        bucket: tuple(random.sample(range(partitions), random.randint(1, min(partitions, 3))))
        for bucket in range(buckets)
        if random.random() < 1 / 2
    }
    return Interval(load_table.interval.number + 1, moved, load_table.routed.rows, (0.0,) * partitions)


def _add_loads(left: Iterable[float], right: Iterable[float]) -> tuple[float, ...]:
    return tuple(first + second for first, second in zip(left, right, strict=True))


def _sum_loads(loads: Iterable[Mapping[int, float]]) -> tuple[float, ...]:
    return tuple(sum(buckets.values()) for buckets in loads)
