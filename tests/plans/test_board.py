"""Intervals of a running stage, and every order in which its tasks may read the load table (`Board` in the code)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.shuffle.balancer import skew
from sparkext.plans.shuffle.load_table import INTERVAL_SECONDS, Board, Interval, Told, drawn, judged, loads_of
from sparkext.plans.shuffle.routing import RoutingTable, Slots
from sparkext.shuffle import router as routers
from sparkext.shuffle.router import Router
from sparkext.shuffle.streamed import HOME, Streamed

LINES, SLOTS = 8, 2


def board(routed: Mapping[int, int], seconds: Mapping[int, float], interval: Interval | None = None) -> Board:
    """Return a load table with these routed rows per bucket, and ten joined rows of each bucket of `seconds`."""
    return Board(interval or Interval(), 1.0, Told(dict(routed)), Told(dict.fromkeys(seconds, 10), dict(seconds)))


def test_costs_are_rows_of_the_interval_by_what_one_takes() -> None:
    """A bucket that no partition has processed yet costs the average per row."""
    before = Interval(3, {}, {0: 100, 1: 50})
    found = board({0: 160, 1: 50, 2: 7}, {0: 1.0, 1: 3.0}, before).costs()
    assert found == pytest.approx({0: 6.0, 1: 0.0, 2: 7 * 0.2})


def test_a_loaded_slot_gives_lines_away() -> None:
    """Only rows of the interval count, and bucket 0 had most of its rows before.

    Bucket 2 counts for its moved partition.
    """
    before = Interval(3, {2: (1,)}, {0: 1000})
    after = judged(board({0: 1010, 1: 40, 2: 20, 3: 40}, dict.fromkeys(range(4), 1.0), before), LINES, SLOTS)
    assert after.number == 4 and after.routed == {0: 1010, 1: 40, 2: 20, 3: 40}
    assert after.judged == pytest.approx((1.0, 10.0))
    assert after.moved != before.moved
    first, second = slots_of(after)
    assert second < first and skew([first, second]) < skew(after.judged), "less than the other, as it has had more"


def slots_of(interval: Interval) -> list[float]:
    table = RoutingTable(LINES, SLOTS, interval.moved)
    return [sum(lines.values()) for lines in loads_of(table, interval.costs)]


def test_a_line_that_many_rows_meet_is_hot_with_few_of_its_own() -> None:
    after = judged(board(dict.fromkeys(range(4), 10), {0: 9.0, 1: 1.0, 2: 1.0, 3: 1.0}), LINES, SLOTS)
    assert len(after.moved[0]) == SLOTS and after.judged == pytest.approx((10.0, 2.0))


def test_even_slots_stay() -> None:
    moved = {5: (0,)}
    after = judged(board({0: 10, 1: 11}, {0: 1.0, 1: 1.0}, Interval(7, moved)), LINES, SLOTS)
    assert after.moved == moved and after.number == 8


def test_what_lines_have_cost_before_counts_less_and_less() -> None:
    seconds = {0: 1.0, 1: 1.0}
    first = judged(board({0: 10, 1: 10}, seconds), LINES, SLOTS)
    second = judged(board({0: 10, 1: 20}, seconds, first), LINES, SLOTS)
    assert 0 < second.costs[0] < 1.0 < second.costs[1] < 2.0
    assert second.judged == pytest.approx((0.0, 1.0))


@pytest.mark.parametrize("times", [2, 3, 8])
def test_what_the_first_interval_cost_is_made_up_for(times: int) -> None:
    """One of four partitions has more rows by hash.

    In the end it has worked no longer than the others, and buckets stay.
    """
    lines, slots, intervals = 64, 4, 16
    rows = {line: 100 * (times if line % slots == 0 else 1) for line in range(lines)}
    interval, worked, tables = Interval(), [0.0] * slots, []
    for number in range(1, intervals + 1):
        table = RoutingTable(lines, slots, interval.moved)
        for slot, load in enumerate(loads_of(table, rows)):
            worked[slot] += sum(load.values())
        routed = {line: number * count for line, count in rows.items()}
        interval = judged(board(routed, dict.fromkeys(rows, 1.0), interval), lines, slots)
        tables.append(interval.moved)
    mean = sum(worked) / slots
    assert max(worked) < 1.05 * mean
    assert tables[-1] == tables[-2]


def test_when_an_interval_is_over() -> None:
    told = Told({0: 5}, {0: 0.1})
    assert Board(Interval(), INTERVAL_SECONDS, Told(), told).is_over
    assert not Board(Interval(), INTERVAL_SECONDS / 2, Told(), told).is_over
    assert not Board(Interval(), INTERVAL_SECONDS, told, Told()).is_over
    assert judged(Board(Interval(), 1.0, told), LINES, SLOTS).moved == {}


counts = st.dictionaries(st.integers(0, LINES - 1), st.integers(0, 1 << 40), max_size=4)
costs = st.dictionaries(st.integers(0, LINES - 1), st.floats(0, 100), max_size=4)
told_by_tasks = st.builds(Told, counts, costs)


@given(told_by_tasks, told_by_tasks)
def test_a_board_is_read_back(routes: Told, slots: Told) -> None:
    now = Board(Interval(), 0.25, routes, slots)
    for interval in (judged(now, LINES, SLOTS), drawn(now, LINES, SLOTS)):
        told = {"routes": vars(routes), "slots": vars(slots)}
        text = json.dumps({"interval": json.loads(interval.to_json()), "seconds": 0.25, **told})
        assert Board.from_json(text) == Board(interval, 0.25, routes, slots)
    nothing = '{"rows": {}, "seconds": {}}'
    assert Board.from_json(f'{{"interval": null, "seconds": 0, "routes": {nothing}, "slots": {nothing}}}') == Board(
        Interval(), 0
    )


_TABLES: tuple[Mapping[int, Slots], ...] = ({0: (1,), 1: (0,)}, {0: (0, 1)}, {}, {1: (1, 0), 0: (1,)})
"""Successive plans of the model's load balancer: buckets are moved, split, and moved back."""

_LOOKS = 2


@dataclass
class Files:
    """The load table that a task reads: always the newest version, with its interval at an end."""

    interval: Interval = field(default_factory=Interval)
    proposed: Interval | None = None

    def board(self) -> Board:
        return Board(self.interval, INTERVAL_SECONDS, Told(), Told({0: 1}, {0: 1.0}))

    def propose(self, interval: Interval) -> None:
        self.proposed = interval


@dataclass
class Model:
    """Two tasks that route rows, two partitions, the load table between them, and the rows in transit."""

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
        """A text that identifies the state."""
        tables = [(router._table.version, router._turn % 2) for router in self.routers]
        proposals = [None if files.proposed is None else files.proposed.number for files in self.files]
        return repr(
            (tables, proposals, self.left, self.looks, self.interval.number, self.ways, self.known, sorted(self.joined))
        )

    def steps(self) -> Iterator[Model]:
        """Yield every possible next state."""
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
        """Join a row like a partition does: a moved bucket's build rows are fetched with its first probe rows."""
        group = STREAMED.group(line, slot)
        if group != HOME:
            self.known[slot].add(group)
        at_home = line % STREAMED.slots == slot
        assert at_home or line in self.known[slot]
        self.joined.append((row, line))


STREAMED = Streamed(2, 2, "model")


def test_every_order_of_routing_proposing_and_joining(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is joined once for any versions of the tables of its task; versions follow each other without gaps."""

    def planned(now: Board, lines: int, slots: int) -> Interval:
        number = now.interval.number
        return Interval(number + 1, _TABLES[number % len(_TABLES)])

    monkeypatch.setitem(routers._JUDGES, "planned", planned)
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
        assert state.interval.moved == (
            {} if not state.interval.number else _TABLES[(state.interval.number - 1) % len(_TABLES)]
        )
        for one in after:
            if one.key not in seen:
                seen.add(one.key)
                waiting.append(one)
    assert ended > 100 and moved > 100
