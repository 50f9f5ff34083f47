"""Intervals of a stage that runs, and every order in which its tasks may see them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.exchange import router as routers
from sparkext.exchange.router import Router
from sparkext.exchange.streamed import HOME, Streamed
from sparkext.plans.board import THRESHOLD, Board, Interval, drawn, judged
from sparkext.plans.foreman import skew
from sparkext.plans.routing import RoutingTable, Slots

LINES, SLOTS = 8, 2


def board(loads: Mapping[int, Mapping[int, float]], interval: Interval | None = None) -> Board:
    return Board(interval or Interval(), 1.0, loads)


def test_a_loaded_slot_gives_lines_away_by_what_the_interval_took() -> None:
    """Not by what was before it: slot 0 had much to do then, slot 1 has now."""
    begun = {0: {0: 90.0, 2: 3.0}, 1: {1: 1.0}}
    before = Interval(3, {2: (1,)}, begun)
    now = {0: {0: 91.0, 2: 3.0}, 1: {1: 5.0, 3: 4.0, 2: 2.0}}
    after = judged(board(now, before), LINES, SLOTS)
    assert after.number == 4 and after.begun == now
    assert after.judged == (1.0, 10.0)
    assert after.moved != before.moved
    table = RoutingTable(LINES, SLOTS, after.moved)
    loads = {0: 1.0, 1: 4.0, 2: 2.0, 3: 4.0}
    slots = [sum(load / len(table.slots_of(line)) for line, load in loads.items() if slot in table.slots_of(line)) for slot in (0, 1)]
    assert skew(slots) < skew(after.judged)


def test_even_slots_stay() -> None:
    moved = {5: (0,)}
    after = judged(board({0: {0: 1.0}, 1: {1: 1.0 + THRESHOLD / 2}}, Interval(7, moved)), LINES, SLOTS)
    assert after.moved == moved and after.number == 8


def test_nothing_told_is_no_load() -> None:
    assert judged(board({}), LINES, SLOTS).moved == {}
    assert judged(board({1: {1: 2.0, 3: 2.0}}), LINES, SLOTS).judged == (0.0, 4.0)


loads_told = st.dictionaries(
    st.integers(0, SLOTS - 1), st.dictionaries(st.integers(0, LINES - 1), st.floats(0, 100), max_size=4)
)


@given(loads_told, loads_told)
def test_a_board_is_read_back(begun: dict[int, dict[int, float]], now: dict[int, dict[int, float]]) -> None:
    for interval in (judged(board(begun), LINES, SLOTS), drawn(board(begun), LINES, SLOTS)):
        text = json.dumps({"interval": json.loads(interval.to_json()), "seconds": 0.25, "loads": now})
        assert Board.from_json(text) == Board(interval, 0.25, now)
    assert Board.from_json('{"interval": null, "seconds": 0, "loads": {}}') == Board(Interval(), 0, {})


_TABLES: tuple[Mapping[int, Slots], ...] = ({0: (1,), 1: (0,)}, {0: (0, 1)}, {}, {1: (1, 0), 0: (1,)})
"""What the foreman of the model plans, one after the other: lines leave, are split, come home."""

_LOOKS = 2


@dataclass
class Files:
    """The board as a task sees it: always the newest, and always over."""

    interval: Interval = field(default_factory=Interval)
    proposed: Interval | None = None

    def board(self) -> Board:
        return Board(self.interval, 1.0, {})

    def propose(self, interval: Interval) -> None:
        self.proposed = interval


@dataclass
class Model:
    """Two tasks that route rows, two slots, the board between them, and what is on its way."""

    routers: list[Router]
    files: list[Files]
    left: list[list[int]]
    looks: list[int]
    interval: Interval = field(default_factory=Interval)
    ways: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    known: list[set[int]] = field(default_factory=lambda: [set(), set()])
    joined: list[tuple[int, int]] = field(default_factory=list)

    @property
    def key(self) -> object:
        """What tells states apart."""
        tables = [(router._table.version, router._turn % 2) for router in self.routers]
        proposals = [None if files.proposed is None else files.proposed.number for files in self.files]
        return repr((tables, proposals, self.left, self.looks, self.interval.number, self.ways, self.known, sorted(self.joined)))

    def steps(self) -> Iterator[Model]:
        """Yield every state that may be next."""
        for task in (0, 1):
            if self.looks[task]:
                after = deepcopy(self)
                after.looks[task] -= 1
                after.files[task].interval = self.interval
                after.routers[task].look()
                yield after
            if self.left[task]:
                after = deepcopy(self)
                line = after.left[task].pop()
                slot = after.routers[task].slot(line)
                after.ways.setdefault((task, slot), []).append((task * 10 + len(after.left[task]), line))
                yield after
            if self.files[task].proposed is not None:
                after = deepcopy(self)
                proposed, after.files[task].proposed = after.files[task].proposed, None
                assert proposed is not None
                if proposed.number == after.interval.number + 1:
                    after.interval = proposed
                yield after
        for way, coming in self.ways.items():
            if coming:
                after = deepcopy(self)
                row, line = after.ways[way].pop(0)
                after.arrive(way[1], row, line)
                yield after

    def arrive(self, slot: int, row: int, line: int) -> None:
        """Join a row, as a slot does: build rows of a line from elsewhere are brought when its first rows come."""
        group = STREAMED.group(line, slot)
        if group != HOME:
            self.known[slot].add(group)
        at_home = line % STREAMED.slots == slot
        assert at_home or line in self.known[slot]
        self.joined.append((row, line))


STREAMED = Streamed(2, 2, "model")


def test_every_order_of_routing_proposing_and_joining(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is joined once, whichever tables its task and the board had; tables follow each other one by one."""

    def planned(now: Board, lines: int, slots: int) -> Interval:
        return Interval(now.interval.number + 1, _TABLES[now.interval.number % len(_TABLES)])

    monkeypatch.setitem(routers._JUDGES, "planned", (planned, 0.0))  # type: ignore[arg-type]
    files = [Files(), Files()]
    begun = Model(
        [Router(STREAMED, seen, "planned", task) for task, seen in enumerate(files)],  # type: ignore[arg-type]
        files,
        [[0, 1], [0]],
        [_LOOKS, _LOOKS],
    )
    wanted = [(0, 0), (1, 1), (10, 0)]
    waiting, seen, ended, moved = [begun], {begun.key}, 0, 0
    while waiting:
        state = waiting.pop()
        after = list(state.steps())
        if not state.left[0] and not state.left[1] and not any(state.ways.values()):
            assert sorted(state.joined) == wanted
            ended += 1
            moved += bool(state.known[0] or state.known[1])
        else:
            assert after, "it would hang"
        assert state.interval.moved == ({} if not state.interval.number else _TABLES[(state.interval.number - 1) % len(_TABLES)])
        for one in after:
            if one.key not in seen:
                seen.add(one.key)
                waiting.append(one)
    assert ended > 100 and moved > 100
