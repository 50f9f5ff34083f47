"""What is known of a stage while rows stream through it, and what the foreman makes of that (`docs/papers.md` 5).

    tasks that route rows ──rows of each line──▶ board ◀──rows and seconds of each line── slots
              ▲                                    │
              └───────────── table ────────────────┤
                                                   ◀──proposal── whoever finds an interval over

All tasks that route rows see one board, and any of them may be the foreman: it judges an interval, and proposes the
table of the next. Of several proposals for one interval the first is taken, so that there is one sequence of tables. A
slot brings the build rows of a line when the first probe rows of that line come: build rows do not change, so it does
not matter which table a task routes by, as long as each probe row goes to one slot.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkext.plans.foreman import Foreman
from sparkext.plans.routing import RoutingTable, Slots

INTERVAL_SECONDS = 0.5
"""How long loads are collected before they are judged."""

THRESHOLD = 0.2
"""The skew above which lines are moved (α)."""

_MADE_UP_FOR = 0.25
"""Of what a slot has had more than others before, in the next interval: all would move lines there and back."""

_WEIGHT_OF_BEFORE = 0.5
"""Of what lines have cost in the intervals before: an interval has few cells of each."""


@dataclass
class Told:
    """What a task has told: of each line the rows that it has routed or joined since it began, and its seconds."""

    rows: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)

    def count(self, line: int, rows: int) -> None:
        """Count more rows of a line."""
        self.rows[line] = self.rows.get(line, 0) + rows

    def spend(self, line: int, seconds: float) -> None:
        """Count more seconds for a line."""
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
    """A table, the `moved` lines of it, by which rows are routed from when so many rows of each line were `routed`.

    `judged`: the load of each slot in the interval before, `done`: in all before, both empty in the first. `costs`: the
    seconds of each line, for which the table was planned: of that interval, and less and less of all before it.
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
    """The interval that runs, for how many `seconds`; what was routed by now, and what slots have joined of it."""

    interval: Interval
    seconds: float
    routed: Told = field(default_factory=Told)
    joined: Told = field(default_factory=Told)

    @classmethod
    def from_json(cls, text: str) -> Board:
        """Read a board as the driver writes it."""
        data = json.loads(text)
        interval = Interval.from_data(data["interval"]) if data["interval"] else Interval()
        return cls(interval, data["seconds"], Told.from_data(data["routes"]), Told.from_data(data["slots"]))

    @property
    def is_over(self) -> bool:
        """Whether the interval can be judged: something has been joined, so that it is known what a row costs."""
        return self.seconds >= INTERVAL_SECONDS and bool(self.joined.rows)

    def costs(self) -> Mapping[int, float]:
        """Return the seconds that slots need for the rows of each line that were routed in this interval.

        L = N · T (Yasui et al., the load of a line), with the T of each line as it was measured: what is received,
        compared and produced for a row differs from line to line. What slots have worked meanwhile says less: it lags
        behind by all that is on its way, and a slot that is behind works no more than others.
        """
        rows, seconds = self.joined.rows, self.joined.seconds
        mean = sum(seconds.values()) / max(1, sum(rows.values()))
        before = self.interval.routed
        return {
            line: (routed - before.get(line, 0)) * (seconds.get(line, 0.0) / rows[line] if rows.get(line) else mean)
            for line, routed in self.routed.rows.items()
        }


def by_line(data: Mapping[str, Any]) -> dict[int, Any]:
    """Return a mapping as JSON has it, by numbers again."""
    return {int(line): value for line, value in data.items()}


def loads_of(table: RoutingTable, costs: Mapping[int, float]) -> list[dict[int, float]]:
    """Return what each slot of a table has to do for its lines."""
    return [
        {line: costs[line] / len(table.slots_of(line)) for line in table.lines_of(slot) if costs.get(line)}
        for slot in range(table.slots)
    ]


def judged(board: Board, lines: int, slots: int) -> Interval:
    """Return the next interval: its table is the foreman's, for what lines cost.

    A slot that has had more to do than others, as in the first interval it had, will have less for a while: the run
    is over when the last of them is done.
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
    """Return a next interval whose table is any: lines are anywhere, and some of them split. For tests."""
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
