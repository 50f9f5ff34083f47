"""What is known of a stage while rows stream through it, and what the foreman makes of that (`papers.md` 5).

    slots ──loads──▶ board ◀──proposal── whoever of the tasks that route rows finds an interval over
                       └──table, loads──▶ all of these

All tasks that route rows see one board, and any of them may be the foreman: it judges an interval, and proposes the
table of the next. Of several proposals for one interval the first is taken, so that there is one sequence of tables. A
slot brings the build rows of a line when the first probe rows of that line come: build rows do not change, so it does
not matter which table a task routes by, as long as each probe row goes to one slot.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkext.plans.foreman import Foreman
from sparkext.plans.routing import RoutingTable, Slots

INTERVAL_SECONDS = 0.5
"""How long loads are collected before they are judged."""

THRESHOLD = 0.3
"""The skew above which lines are moved (α)."""

Loads = Mapping[int, Mapping[int, float]]
"""Of each slot that has told anything, the seconds that it has spent on each line since it began."""


@dataclass(frozen=True)
class Interval:
    """A table, the `moved` lines of it, by which rows are routed from when slots had spent `begun`.

    `judged`: the seconds of each slot in the interval before, for which it was planned.
    """

    number: int = 0
    moved: Mapping[int, Slots] = field(default_factory=dict)
    begun: Loads = field(default_factory=dict)
    judged: tuple[float, ...] = ()

    def to_json(self) -> str:
        """Serialise; `from_data` reads it back."""
        return json.dumps(vars(self))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Interval:
        """Read what `to_json` wrote."""
        moved = {int(line): tuple(slots) for line, slots in data["moved"].items()}
        return cls(data["number"], moved, loads_of(data["begun"]), tuple(data["judged"]))

    def spent(self, loads: Loads, slots: int) -> list[dict[int, float]]:
        """Return the seconds of each slot by line, from the beginning of this interval to when `loads` were told."""
        return [_spent(loads.get(slot, {}), self.begun.get(slot, {})) for slot in range(slots)]


@dataclass(frozen=True)
class Board:
    """The interval that runs, for how many `seconds`, and what slots have told by now."""

    interval: Interval
    seconds: float
    loads: Loads

    @classmethod
    def from_json(cls, text: str) -> Board:
        """Read a board as the driver writes it."""
        data = json.loads(text)
        interval = Interval.from_data(data["interval"]) if data["interval"] else Interval()
        return cls(interval, data["seconds"], loads_of(data["loads"]))


def loads_of(data: Mapping[str, Mapping[str, float]]) -> dict[int, dict[int, float]]:
    """Return loads as they are told in JSON."""
    return {int(slot): {int(line): load for line, load in lines.items()} for slot, lines in data.items()}


def judged(board: Board, lines: int, slots: int) -> Interval:
    """Return the next interval: its table is the foreman's, by what slots have spent in the one that runs."""
    spent = board.interval.spent(board.loads, slots)
    table = RoutingTable(lines, slots, board.interval.moved, board.interval.number)
    planned = Foreman(THRESHOLD).plan(table, total(spent), spent.__getitem__)
    return Interval(board.interval.number + 1, planned.moved, board.loads, total(spent))


def drawn(board: Board, lines: int, slots: int) -> Interval:
    """Return a next interval whose table is any: lines are anywhere, and some of them split. For tests."""
    moved = {
        line: tuple(random.sample(range(slots), random.randint(1, min(slots, 3))))
        for line in range(lines)
        if random.random() < 1 / 2
    }
    return Interval(board.interval.number + 1, moved, board.loads, total(board.interval.spent(board.loads, slots)))


def total(spent: Sequence[Mapping[int, float]]) -> tuple[float, ...]:
    """Return the seconds of each slot."""
    return tuple(sum(lines.values()) for lines in spent)


def _spent(now: Mapping[int, float], before: Mapping[int, float]) -> dict[int, float]:
    found = {line: load - before.get(line, 0.0) for line, load in now.items()}
    return {line: load for line, load in found.items() if load > 0}
