"""Routing of the rows of an ordered stream: P-SORT, with another planner than the paper's (`plans.streams.psort`).

Order keys and operator keys are hashed to buckets (`lines` in the code), as there may be any number of keys. Rows of an
order bucket go to one partition (`slot`). Rows of a split order bucket are processed in an earlier stage, in the
partitions of their operator buckets, and one partition of the later stage merges the results.

    rows ──▶ order bucket ──┬─ whole ──▶ partition of the order bucket ──────────────────────────▶ results
                            └─ split ──▶ partition of the operator bucket ──▶ merging partition ─▶ results
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkext.plans.shuffle.balancer import Foreman
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.plans.streams.psort import makespan

LINES = 1 << 12
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
    def slots(self) -> int:
        """The number of partitions of each stage."""
        return self.whole.slots

    def to_data(self) -> dict[str, Any]:
        """Return plain data; `from_data` reads it back."""
        return {
            "slots": self.slots,
            "whole": [[line, *slots] for line, slots in self.whole.moved.items()],
            "parts": [[line, *slots] for line, slots in self.parts.moved.items()],
            "merged": [[line, slot] for line, slot in self.merged.items()],
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> OrderTable:
        """Read what `to_data` returned."""
        whole, parts = (
            RoutingTable(LINES, data["slots"], {line: (slot,) for line, slot in data[name]})
            for name in ("whole", "parts")
        )
        return cls(whole, parts, dict(data["merged"]))

    def load(self, rows: Mapping[int, float]) -> float:
        """Return the time to process these rows per order bucket, in units of the time of one row."""
        return _load(rows, {*self.merged}, self._tasks(rows), self.slots)

    def _tasks(self, rows: Mapping[int, float]) -> list[float]:
        return _loads(self.whole, {line: count for line, count in rows.items() if line not in self.merged})


def first_table(slots: int) -> OrderTable:
    """Return the initial table: nothing is split."""
    return OrderTable(RoutingTable(LINES, slots), RoutingTable(LINES, slots))


def even_table(slots: int, lines: Iterable[int]) -> OrderTable:
    """Return the table that distributes keys evenly, given the bucket of each key. All keys count the same."""
    keys = Counter(lines)
    homes = {line: (number % slots,) for number, (line, _) in enumerate(keys.most_common())}
    return OrderTable(RoutingTable(LINES, slots, homes), RoutingTable(LINES, slots))


def any_table(slots: int, may_split: bool) -> OrderTable:
    """Return a random table."""
    moved = [{line: (random.randrange(slots),) for line in range(LINES)} for _ in range(2)]
    split = random.sample(range(LINES), random.randrange(LINES) if may_split else 0)
    return OrderTable(
        RoutingTable(LINES, slots, moved[0]),
        RoutingTable(LINES, slots, moved[1]),
        {line: random.randrange(slots) for line in split},
    )


def next_table(table: OrderTable, rows: Mapping[int, float], parts: Mapping[int, float], may_split: bool) -> OrderTable:
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
    split = _split(rows, table.slots) if may_split else set[int]()
    whole = _evened(table.whole, {line: count for line, count in rows.items() if line not in split})
    following = OrderTable(whole, _evened(table.parts, parts), _merged(split, rows, table.slots))
    if {*following.merged} == {*table.merged} and _gains(table.parts, following.parts, parts):
        return following
    return following if following.load(rows) < _GAIN * table.load(rows) else table


def _gains(table: RoutingTable, following: RoutingTable, rows: Mapping[int, float]) -> bool:
    """Return whether another table reduces the load of the most loaded partition by more than a tenth."""
    if sum(rows.values()) < _LEAST_ROWS:
        return False
    return max(_loads(following, rows)) < _GAIN * max(_loads(table, rows))


def _loads(table: RoutingTable, rows: Mapping[int, float]) -> list[float]:
    loads = [0.0] * table.slots
    for line, count in rows.items():
        loads[table.slots_of(line)[0]] += count
    return loads


def _evened(table: RoutingTable, rows: Mapping[int, float]) -> RoutingTable:
    """Move buckets from loaded partitions to light ones, as few as possible."""
    by_slot: dict[int, dict[int, float]] = defaultdict(dict)
    for line, count in rows.items():
        by_slot[table.slots_of(line)[0]][line] = count
    return Foreman(_THRESHOLD, lambda line: False).plan(table, _loads(table, rows), lambda slot: by_slot[slot])


def _split(rows: Mapping[int, float], slots: int) -> set[int]:
    """Return the buckets to split: the n heaviest, for the n that minimises the total time."""
    heaviest = sorted(rows, key=lambda line: (-rows[line], line))
    share = sum(rows.values()) / slots
    best, least = set[int](), makespan(rows.values(), slots)
    for count, line in enumerate(heaviest, 1):
        if rows[line] < share / 2:
            break
        split = {*heaviest[:count]}
        load = _load(rows, split, [rows[other] for other in heaviest[count:]], slots)
        if load < least:
            best, least = split, load
    return best


def _load(rows: Mapping[int, float], split: set[int], whole: Iterable[float], slots: int) -> float:
    """Return the time of both stages: the rows of split buckets, then whole buckets and merges."""
    merges = [MERGE_COST * rows.get(line, 0) for line in split]
    return sum(rows.get(line, 0) for line in split) / slots + makespan([*whole, *merges], slots)


def _merged(split: set[int], rows: Mapping[int, float], slots: int) -> dict[int, int]:
    """Assign the merge of each split bucket to the partition with the least to merge, the heaviest first."""
    loads = [0.0] * slots
    merged = {}
    for line in sorted(split, key=lambda line: (-rows[line], line)):
        merged[line] = loads.index(min(loads))
        loads[merged[line]] += rows[line]
    return merged
