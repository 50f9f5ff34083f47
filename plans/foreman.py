"""Evens out the slots of a partitioned join while it runs, by what each hash line cost (Yasui, Tamura, Oguchi and
Kitsuregawa, dynamic load balancing in a parallel DBMS; `docs/papers.md` 5).

The load of a slot, as of one line, over the last interval is

    L = N_recv · T_recv + N_comp · T_comp + N_send · T_send

with the rows received, the build rows compared, the rows produced, and the seconds that one of each takes, measured.
So a key that meets many rows counts, even if few rows of it arrive. The skew of a stage is (max L - min L) / mean L
over its slots. Above a threshold the foreman asks the loaded slots for the loads of their lines, and plans a table in
which lines are in lighter slots; one that is too hot for any slot is in several.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparkext.plans.routing import RoutingTable


@dataclass(frozen=True)
class UnitCosts:
    """Seconds that it takes to receive a probe row, to compare it with a build row, to produce a row."""

    received: float
    compared: float
    produced: float


@dataclass(frozen=True)
class Counts:
    """Rows of a line, or of a slot, over an interval: received, compared with, produced."""

    received: int
    compared: int
    produced: int

    def load(self, costs: UnitCosts) -> float:
        """Return the seconds that they took."""
        return self.received * costs.received + self.compared * costs.compared + self.produced * costs.produced


@dataclass(frozen=True)
class Foreman:
    """Plans tables for one stage. `threshold`: the skew above which it does (α).

    `may_split`: whether a line may be in several slots; not where rows of one key have to come out of one, or where it
    gains nothing.
    """

    threshold: float
    may_split: Callable[[int], bool] = lambda line: True

    def plan(
        self, table: RoutingTable, loads: Sequence[float], line_loads: Callable[[int], Mapping[int, float]]
    ) -> RoutingTable:
        """Return the table to go on with: this one, unless its slots are skewed and another is better.

        Parameters
        ----------
        loads
            Of each slot, in seconds.
        line_loads
            Tells the loads of those lines in a slot that have any; is asked of loaded slots only.
        """
        return table if skew(loads) <= self.threshold else _Plan(table, loads, line_loads, self).table()


def skew(loads: Sequence[float]) -> float:
    """Return (max - min) / mean of the loads of slots; 0 where there is none."""
    total = sum(loads)
    return (max(loads) - min(loads)) * len(loads) / total if total > 0 else 0.0


_PASSES = 4
"""A share of a hot line may overload the slot that it comes to, which lets others go in the next pass."""


@dataclass(frozen=True, order=True)
class _Piece:
    """What a slot has to do for a line, and another is to. `slot`: which it leaves; -1 if a share of it stays there."""

    load: float
    line: int
    slot: int


class _Plan:
    """The loads of slots as they will be, and the slots of lines that go elsewhere."""

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
        """Let lines leave the slots above the mean for the lightest, until no more is to be gained."""
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
        """Let lines leave a slot until it has no more than the mean: few, so the hottest of those that may."""
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
        """Leave a share of a line where it is, and let the others go to slots that it is not in."""
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
        """Give each piece to the lightest slot that has none of its line, the most costly first."""
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
