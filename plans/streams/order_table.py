"""Routing of the rows of an ordered stream: P-SORT, with another planner than the paper's (`docs/papers.md` 1).

Order keys and operator keys are hashed to buckets, as there may be any number of keys. Rows of an order bucket go to
one partition. Rows of a split order bucket are processed in an earlier stage, in the partitions of their operator
buckets, and one partition of the later stage merges the results.

    rows ──▶ order bucket ──┬─ whole ──▶ partition of the order bucket ──────────────────────────▶ results
                            └─ split ──▶ partition of the operator bucket ──▶ merging partition ─▶ results
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkext.plans.shuffle.balancer import Balancer
from sparkext.plans.shuffle.routing import RoutingTable

BUCKETS = 1 << 12
"""Number of buckets of order keys, and of operator keys: a power of two."""

WHOLE, SPLIT = range(2)
"""The two paths of rows."""

MERGE_COST = 0.25
"""Cost of sending a row on and merging it, relative to the cost of processing it."""

_GAIN = 0.9
_THRESHOLD = 0.1
_LEAST_ROWS = 1_000


@dataclass(frozen=True)
class OrderTable:
    """The partitions of order buckets and operator buckets.

    `whole`: the partitions of order buckets that are not split. `merged`: for each split order bucket, the partition
    that merges it. `parts`: the partitions of operator buckets.
    """

    whole: RoutingTable
    parts: RoutingTable
    merged: Mapping[int, int] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        """The number of partitions of each stage."""
        return self.whole.partitions

    def to_data(self) -> dict[str, Any]:
        """Return plain data; `from_data` reads it back."""
        return {
            "partitions": self.partitions,
            "whole": [[bucket, *partitions] for bucket, partitions in self.whole.moved.items()],
            "parts": [[bucket, *partitions] for bucket, partitions in self.parts.moved.items()],
            "merged": [[bucket, partition] for bucket, partition in self.merged.items()],
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> OrderTable:
        """Read the result of `to_data`."""
        unsplit, parts = (
            RoutingTable(BUCKETS, data["partitions"], {bucket: (partition,) for bucket, partition in data[name]})
            for name in ("whole", "parts")
        )
        return cls(unsplit, parts, dict(data["merged"]))

    def load(self, rows: Mapping[int, float]) -> float:
        """Return the time to process these rows per order bucket, in units of the time of one row."""
        return _estimate_time(rows, {*self.merged}, self._tasks(rows), self.partitions)

    def _tasks(self, rows: Mapping[int, float]) -> list[float]:
        return _count_loads(self.whole, {bucket: count for bucket, count in rows.items() if bucket not in self.merged})


def create_first_table(partitions: int) -> OrderTable:
    """Return the initial table: nothing is split."""
    return OrderTable(RoutingTable(BUCKETS, partitions), RoutingTable(BUCKETS, partitions))


def distribute_keys(partitions: int, buckets: Iterable[int]) -> OrderTable:
    """Return the table that distributes keys evenly, given the bucket of each key. All keys count the same."""
    keys = Counter(buckets)
    homes = {bucket: (number % partitions,) for number, (bucket, _) in enumerate(keys.most_common())}
    return OrderTable(RoutingTable(BUCKETS, partitions, homes), RoutingTable(BUCKETS, partitions))


def draw_order_table(partitions: int, may_split: bool) -> OrderTable:
    """Return a random table."""
    assignments = [{bucket: (random.randrange(partitions),) for bucket in range(BUCKETS)} for _ in range(2)]
    split = random.sample(range(BUCKETS), random.randrange(BUCKETS) if may_split else 0)
    return OrderTable(
        RoutingTable(BUCKETS, partitions, assignments[0]),
        RoutingTable(BUCKETS, partitions, assignments[1]),
        {bucket: random.randrange(partitions) for bucket in split},
    )


def plan_next_table(
    table: OrderTable, rows: Mapping[int, float], parts: Mapping[int, float], may_split: bool
) -> OrderTable:
    """Return the next table: the current one, unless another saves more than a tenth of the time for the rows received.

    With the same split buckets, it is enough that the most loaded of their partitions saves this share.

    Parameters
    ----------
    table
        The current table.
    rows
        The number of rows received, per order bucket.
    parts
        The number of rows received of split order buckets, per operator bucket.
    may_split
        Whether order buckets may be split.
    """
    if sum(rows.values()) < _LEAST_ROWS:
        return table
    split = _choose_split_buckets(rows, table.partitions) if may_split else set[int]()
    unsplit = _even_out(table.whole, {bucket: count for bucket, count in rows.items() if bucket not in split})
    following = OrderTable(unsplit, _even_out(table.parts, parts), _assign_merges(split, rows, table.partitions))
    if {*following.merged} == {*table.merged} and _gains(table.parts, following.parts, parts):
        return following
    return following if following.load(rows) < _GAIN * table.load(rows) else table


def _gains(table: RoutingTable, following: RoutingTable, rows: Mapping[int, float]) -> bool:
    """Return whether another table reduces the load of the most loaded partition by more than a tenth."""
    if sum(rows.values()) < _LEAST_ROWS:
        return False
    return max(_count_loads(following, rows)) < _GAIN * max(_count_loads(table, rows))


def _count_loads(table: RoutingTable, rows: Mapping[int, float]) -> list[float]:
    loads = [0.0] * table.partitions
    for bucket, count in rows.items():
        loads[table.partitions_of(bucket)[0]] += count
    return loads


def _even_out(table: RoutingTable, rows: Mapping[int, float]) -> RoutingTable:
    """Move buckets from loaded partitions to light ones, as few as possible."""
    by_partition: dict[int, dict[int, float]] = defaultdict(dict)
    for bucket, count in rows.items():
        by_partition[table.partitions_of(bucket)[0]][bucket] = count
    return Balancer(_THRESHOLD, lambda bucket: False).plan(
        table, _count_loads(table, rows), lambda partition: by_partition[partition]
    )


def _choose_split_buckets(rows: Mapping[int, float], partitions: int) -> set[int]:
    """Return the buckets to split: the n heaviest, for the n that minimises the total time."""
    heaviest = sorted(rows, key=lambda bucket: (-rows[bucket], bucket))
    share = sum(rows.values()) / partitions
    best, least = set[int](), compute_makespan(rows.values(), partitions)
    for count, bucket in enumerate(heaviest, 1):
        if rows[bucket] < share / 2:
            break
        split = {*heaviest[:count]}
        load = _estimate_time(rows, split, [rows[other] for other in heaviest[count:]], partitions)
        if load < least:
            best, least = split, load
    return best


def _estimate_time(rows: Mapping[int, float], split: set[int], unsplit: Iterable[float], partitions: int) -> float:
    """Return the time of both stages: the rows of split buckets, then whole buckets and merges."""
    merges = [MERGE_COST * rows.get(bucket, 0) for bucket in split]
    return sum(rows.get(bucket, 0) for bucket in split) / partitions + compute_makespan([*unsplit, *merges], partitions)


def compute_makespan(loads: Iterable[float], partitions: int) -> float:
    """Return when the last of some tasks ends, if each free partition runs the longest task that is left."""
    ends = [0.0] * partitions
    for load in sorted(loads, reverse=True):
        heapq.heapreplace(ends, ends[0] + load)
    return max(ends)


def _assign_merges(split: set[int], rows: Mapping[int, float], partitions: int) -> dict[int, int]:
    """Assign the merge of each split bucket to the partition with the least to merge, the heaviest first."""
    loads = [0.0] * partitions
    merged = {}
    for bucket in sorted(split, key=lambda bucket: (-rows[bucket], bucket)):
        merged[bucket] = loads.index(min(loads))
        loads[merged[bucket]] += rows[bucket]
    return merged
