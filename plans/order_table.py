"""Where the rows of an ordered stream go: after P-SORT, with another planner than the paper's (`plans.psort`).

Order keys and operator keys have hash lines, as there may be any number of them. Rows of an order line go to one slot;
those of a split one go by their operator line, to slots of the stage before, and their results are merged in one.

    rows ──▶ order line ──┬─ whole ──▶ slot of the order line ───────────────────────────────▶ results
                          └─ split ──▶ slot of the operator line ──▶ slot that merges ───────▶ results
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkext.plans.foreman import Foreman
from sparkext.plans.psort import makespan
from sparkext.plans.routing import RoutingTable

LINES = 1 << 12
"""Of order keys, and of operator keys: a power of two."""

WHOLE, SPLIT = range(2)
"""The ways of rows."""

MERGE_COST = 0.25
"""What it takes to send a row on and to merge it, where it takes 1 to process it."""

_GAIN = 0.9
_THRESHOLD = 0.1
_LEAST_ROWS = 1_000


@dataclass(frozen=True)
class OrderTable:
    """`whole` has the slots of order lines, but for those that are split: of these, `merged` has the slot that merges
    them, and `parts` the slots of operator lines.
    """

    whole: RoutingTable
    parts: RoutingTable
    merged: Mapping[int, int] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """How many slots there are of each kind."""
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
        """Return how long it takes to process rows of order lines, of which one takes 1."""
        return _load(rows, {*self.merged}, self._tasks(rows), self.slots)

    def _tasks(self, rows: Mapping[int, float]) -> list[float]:
        return _loads(self.whole, {line: count for line, count in rows.items() if line not in self.merged})


def first_table(slots: int) -> OrderTable:
    """Return the table to begin with: nothing is split."""
    return OrderTable(RoutingTable(LINES, slots), RoutingTable(LINES, slots))


def even_table(slots: int, lines: Iterable[int]) -> OrderTable:
    """Return the table by which keys of as many rows each, on these lines, are dealt out evenly."""
    keys = Counter(lines)
    homes = {line: (number % slots,) for number, (line, _) in enumerate(keys.most_common())}
    return OrderTable(RoutingTable(LINES, slots, homes), RoutingTable(LINES, slots))


def any_table(slots: int, may_split: bool) -> OrderTable:
    """Return a table that is drawn at random."""
    moved = [{line: (random.randrange(slots),) for line in range(LINES)} for _ in range(2)]
    split = random.sample(range(LINES), random.randrange(LINES) if may_split else 0)
    return OrderTable(
        RoutingTable(LINES, slots, moved[0]),
        RoutingTable(LINES, slots, moved[1]),
        {line: random.randrange(slots) for line in split},
    )


def next_table(table: OrderTable, rows: Mapping[int, float], parts: Mapping[int, float], may_split: bool) -> OrderTable:
    """Return the table to go on with: this one, unless another takes a tenth less time for as many rows as have come.

    Parameters
    ----------
    table
        As it is.
    rows
        How many have come of each order line.
    parts
        How many of the rows of split lines have come of each operator line.
    may_split
        Whether order lines may be split.
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
    """Return whether another table takes a tenth off the most loaded slot."""
    if sum(rows.values()) < _LEAST_ROWS:
        return False
    return max(_loads(following, rows)) < _GAIN * max(_loads(table, rows))


def _loads(table: RoutingTable, rows: Mapping[int, float]) -> list[float]:
    loads = [0.0] * table.slots
    for line, count in rows.items():
        loads[table.slots_of(line)[0]] += count
    return loads


def _evened(table: RoutingTable, rows: Mapping[int, float]) -> RoutingTable:
    """Move lines from loaded slots to light ones, as few as will do."""
    by_slot: dict[int, dict[int, float]] = defaultdict(dict)
    for line, count in rows.items():
        by_slot[table.slots_of(line)[0]][line] = count
    return Foreman(_THRESHOLD, lambda line: False).plan(table, _loads(table, rows), lambda slot: by_slot[slot])


def _split(rows: Mapping[int, float], slots: int) -> set[int]:
    """Return the lines to split: as many of the heaviest as make the whole take least time."""
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
    """Return how long both stages take: the rows of split lines, then the others and what merges."""
    merges = [MERGE_COST * rows.get(line, 0) for line in split]
    return sum(rows.get(line, 0) for line in split) / slots + makespan([*whole, *merges], slots)


def _merged(split: set[int], rows: Mapping[int, float], slots: int) -> dict[int, int]:
    """Deal out what merges over slots."""
    loads = [0.0] * slots
    merged = {}
    for line in sorted(split, key=lambda line: (-rows[line], line)):
        merged[line] = loads.index(min(loads))
        loads[merged[line]] += rows[line]
    return merged
