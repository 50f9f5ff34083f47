"""The load balancer: evens out the partitions of a partitioned join while it runs, by the cost of each bucket.

Source: Yasui, Tamura, Oguchi and Kitsuregawa, dynamic load balancing in a parallel DBMS (`docs/papers.md` 5). The paper
calls the load balancer foreman and a bucket hash line (`Foreman` and `line` in the code); a partition is a `slot`. The
load of a partition, or of a bucket, over the last interval is

    L = N_recv · T_recv + N_comp · T_comp + N_send · T_send

with the rows received, the build rows compared, the rows produced, and the measured seconds per row of each. So a key
with many matches has a high load, even if few rows of it arrive. The skew of a stage is (max L - min L) / mean L over
its partitions. Above a threshold, the balancer requests the loads of the buckets in the loaded partitions, and plans a
table that moves buckets to lighter partitions; a bucket that is too hot for any one partition is split over several.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparkext.plans.shuffle.routing import RoutingTable


@dataclass(frozen=True)
class UnitCosts:
    """Seconds to receive a probe row, to compare it with a build row, and to produce a row."""

    received: float
    compared: float
    produced: float


@dataclass(frozen=True)
class Counts:
    """Rows of a bucket, or of a partition, over an interval: received, compared, produced."""

    received: int
    compared: int
    produced: int

    def load(self, costs: UnitCosts) -> float:
        """Return the seconds for these rows."""
        return self.received * costs.received + self.compared * costs.compared + self.produced * costs.produced


@dataclass(frozen=True)
class Foreman:
    """Plans tables for one stage, if its skew is above `threshold` (α).

    `may_split`: whether a bucket may be in several partitions. It may not if one partition has to emit all rows of a
    key, or if a split gains nothing.
    """

    threshold: float
    may_split: Callable[[int], bool] = lambda line: True

    def plan(
        self, table: RoutingTable, loads: Sequence[float], line_loads: Callable[[int], Mapping[int, float]]
    ) -> RoutingTable:
        """Return the next table: the current one, unless its partitions are skewed and buckets can be moved.

        Parameters
        ----------
        loads
            The load of each partition, in seconds.
        line_loads
            Returns the loads of a partition's buckets, without buckets of no load; called for loaded partitions only.
        """
        return table if skew(loads) <= self.threshold else _Plan(table, loads, line_loads, self).table()


def skew(loads: Sequence[float]) -> float:
    """Return (max - min) / mean of the loads of partitions; 0 if there is no load."""
    total = sum(loads)
    return (max(loads) - min(loads)) * len(loads) / total if total > 0 else 0.0


_PASSES = 4
"""A share of a hot bucket may overload the partition that receives it. The next pass moves other buckets from there."""


@dataclass(frozen=True, order=True)
class _Piece:
    """A load of a bucket to move to another partition.

    `slot`: the partition that the bucket leaves, or -1 if a share of the bucket stays there.
    """

    load: float
    line: int
    slot: int


class _Plan:
    """The planned loads of partitions, and the planned partitions of moved buckets."""

    def __init__(
        self,
        table: RoutingTable,
        loads: Sequence[float],
        line_loads: Callable[[int], Mapping[int, float]],
        foreman: Foreman,
    ) -> None:
        self._table, self._line_loads, self._foreman = table, line_loads, foreman
        self._loads = list(loads)
        self._mean = sum(loads) / len(loads)
        self._too_much = self._mean * (1 + foreman.threshold / 2)
        self._slots: dict[int, set[int]] = {}
        self._lines: dict[int, dict[int, float]] = {}
        self._arrived: dict[int, dict[int, float]] = defaultdict(dict)

    def table(self) -> RoutingTable:
        """Move buckets from partitions above the mean to the lightest, until the skew is low or no bucket can move."""
        for _ in range(_PASSES):
            loaded = [slot for slot, load in enumerate(self._loads) if load > self._mean]
            leaving = [piece for slot in loaded for piece in self._relieve(slot)]
            self._settle(leaving)
            if not leaving or skew(self._loads) <= self._foreman.threshold / 2:
                break
        changes = {line: tuple(sorted(slots)) for line, slots in self._slots.items()}
        changes = {line: slots for line, slots in changes.items() if slots != self._table.slots_of(line)}
        return self._table.followed(changes) if changes else self._table

    def _relieve(self, slot: int) -> list[_Piece]:
        """Split or remove buckets of a partition, the hottest first, so that few move; return the pieces to move.

        A bucket is removed only if the remaining load is at least the mean. If this load is still too high in the end,
        the lightest bucket is removed, too.
        """
        lines = self._lines_in(slot)
        leaving: list[_Piece] = []
        for line in sorted(lines, key=lambda line: (-lines[line], line)):
            if lines[line] > self._too_much and self._foreman.may_split(line):
                leaving += self._split(slot, line)
            elif lines[line] <= self._loads[slot] - self._mean:
                leaving.append(self._left(slot, line))
        if self._loads[slot] > self._too_much and len(lines) > 1:
            leaving.append(self._left(slot, min(lines, key=lambda line: (lines[line], line))))
        return leaving

    def _lines_in(self, slot: int) -> dict[int, float]:
        if slot not in self._lines:
            self._lines[slot] = dict(self._line_loads(slot))
        self._lines[slot].update(self._arrived.pop(slot, {}))
        return self._lines[slot]

    def _split(self, slot: int, line: int) -> list[_Piece]:
        """Leave one share of a bucket in its partition; return the others, for partitions without the bucket."""
        load = self._lines[slot][line]
        shares = min(math.ceil(load / self._mean), self._table.slots)
        self._lines[slot][line] = load / shares
        self._loads[slot] -= load - load / shares
        return [_Piece(load / shares, line, -1)] * (shares - 1)

    def _left(self, slot: int, line: int) -> _Piece:
        load = self._lines[slot].pop(line)
        self._loads[slot] -= load
        return _Piece(load, line, slot)

    def _settle(self, leaving: list[_Piece]) -> None:
        """Assign each piece to the lightest partition that does not have its bucket, the most costly piece first."""
        lightest = [(load, slot) for slot, load in enumerate(self._loads)]
        heapq.heapify(lightest)
        for piece in sorted(leaving, reverse=True):
            slots = self._slots.setdefault(piece.line, {*self._table.slots_of(piece.line)})
            slots.discard(piece.slot)
            passed = []
            while lightest and lightest[0][1] in slots:
                passed.append(heapq.heappop(lightest))
            if lightest:
                load, slot = heapq.heapreplace(lightest, (lightest[0][0] + piece.load, lightest[0][1]))
                self._loads[slot] = load + piece.load
                self._arrived[slot][piece.line] = piece.load
                slots.add(slot)
            for entry in passed:
                heapq.heappush(lightest, entry)
