"""Plans of the load balancer (`Foreman` in the code): recomputed loads, and bounds that every such plan satisfies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkext.plans.shuffle.balancer import Counts, Foreman, UnitCosts, skew
from sparkext.plans.shuffle.routing import RoutingTable

ALPHA = 0.3
hot_and_cold = st.one_of(st.integers(0, 3), st.integers(0, 1000)).map(float)


def loads_of(table: RoutingTable, lines: Sequence[float]) -> list[float]:
    """Return the loads of partitions. The load of a split bucket is divided evenly."""
    loads = [0.0] * table.slots
    for line, load in enumerate(lines):
        for slot in table.slots_of(line):
            loads[slot] += load / len(table.slots_of(line))
    return loads


class Asked:
    """Returns the loads of a partition's buckets, and records for which partitions."""

    def __init__(self, table: RoutingTable, lines: Sequence[float]) -> None:
        self.table, self.lines, self.slots = table, lines, list[int]()

    def __call__(self, slot: int) -> Mapping[int, float]:
        self.slots.append(slot)
        lines = self.table.lines_of(slot)
        return {line: self.lines[line] / len(self.table.slots_of(line)) for line in lines if self.lines[line]}


def planned(table: RoutingTable, lines: Sequence[float], may_split: bool = True) -> tuple[RoutingTable, Asked]:
    asked = Asked(table, lines)
    return Foreman(ALPHA, lambda line: may_split).plan(table, loads_of(table, lines), asked), asked


def test_load_and_skew_are_those_of_the_paper() -> None:
    assert Counts(10, 20, 30).load(UnitCosts(1e-3, 1e-4, 1e-5)) == pytest.approx(0.0123)
    assert skew([1.0, 2.0, 3.0]) == pytest.approx(1.0)
    assert skew([0.0, 0.0]) == skew([]) == skew([5.0]) == 0.0


@given(st.integers(1, 7), st.lists(hot_and_cold, min_size=1, max_size=40), st.booleans())
@example(6, [1.0, 2.0, 1.0, 1.0, 3.0], True)
def test_plans(slots: int, lines: list[float], may_split: bool) -> None:
    table = RoutingTable(len(lines), slots)
    before = loads_of(table, lines)
    after_table, asked = planned(table, lines, may_split)
    after = loads_of(after_table, lines)
    mean = sum(lines) / slots
    if skew(before) <= ALPHA:
        assert after_table is table and not asked.slots
        return
    assert sum(after) == pytest.approx(sum(before))
    assert may_split or all(len(after_table.slots_of(line)) == 1 for line in range(len(lines)))
    assert len(asked.slots) == len({*asked.slots})
    loaded = [slot for slot, load in enumerate(before) if load > sum(before) / slots]
    # More partitions may follow, which were overloaded temporarily by buckets that were moved to them during planning.
    assert asked.slots[: len(loaded)] == loaded
    # A bound of every plan that moves to the lightest: above the mean by one bucket at most, and hot buckets are split.
    longest = min(max(lines), mean * (1 + ALPHA / 2)) if may_split else max(lines)
    assert max(after) <= max(mean * (1 + ALPHA / 2), mean + longest) * (1 + 1e-9)


@given(st.integers(2, 20), st.integers(0, 19), st.integers(2, 10))
def test_many_lines_of_one_loaded_slot(slots: int, loaded: int, times: int) -> None:
    """The skew of the paper: all buckets of one partition have more rows. The plan leaves at most a bucket's load."""
    table = RoutingTable(50 * slots, slots)
    lines = [float(times if table.home(line) == loaded % slots else 1) for line in range(50 * slots)]
    after, asked = planned(table, lines)
    if skew(loads_of(table, lines)) > ALPHA:
        assert asked.slots[:1] == [loaded % slots]
        assert all(len(after.slots_of(line)) == 1 for line in after.moved)
    assert skew(loads_of(after, lines)) <= ALPHA


@pytest.mark.parametrize("slots", [2, 3, 16])
def test_one_line_has_all_rows(slots: int) -> None:
    lines = [0.0] * 99 + [1000.0]
    table = RoutingTable(100, slots)
    after, _ = planned(table, lines)
    assert {*after.slots_of(99)} == {*range(slots)} and skew(loads_of(after, lines)) == pytest.approx(0)
    assert planned(table, lines, may_split=False)[0].moved == {}


def test_zipf() -> None:
    lines = [1000 / (1 + (number * 617) % 1000) for number in range(1000)]
    table = RoutingTable(1000, 100)
    after, _ = planned(table, lines)
    assert skew(loads_of(table, lines)) > 10 and skew(loads_of(after, lines)) <= ALPHA
    # Split buckets remain where they are, and so does the table once loads are even.
    assert planned(after, lines)[0] is after


def test_plans_from_a_table_with_split_lines() -> None:
    """A bucket that became hotter is split over more partitions, including those that have its build rows."""
    table = RoutingTable(8, 4, {1: (1, 2)})
    lines = [1.0, 100.0, *[1.0] * 6]
    after, _ = planned(table, lines)
    assert {1, 2} <= {*after.slots_of(1)} == {0, 1, 2, 3}
    assert after.new_slots(table)[1] == (0, 3)
