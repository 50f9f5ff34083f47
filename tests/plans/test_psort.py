"""P-SORT's tables: the example of the paper, its rules, and their consequences."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from sparkext.plans.streams.psort import Assignment, Members, basic, makespan, optimised

PAPER: Members = {
    device: {f"{device}{number}": 1 for number in range(sensors)}
    for device, sensors in (("A", 6), ("B", 2), ("C", 1), ("D", 1))
}


def loads(members: Members, found: Assignment, slots: int) -> list[int]:
    weights = Counter[int]()
    for (key, member), slot in found.slots.items():
        weights[slot] += members[key][member]
    return [weights[slot] for slot in range(slots)]


def slots_of(found: Assignment) -> Mapping[object, set[int]]:
    slots: dict[object, set[int]] = {}
    for (key, _), slot in found.slots.items():
        slots.setdefault(key, set()).add(slot)
    return slots


def test_the_example_of_the_paper() -> None:
    """10 sensors on 4 cores: A is split over two, B has one, C and D share one."""
    found = optimised(PAPER, 4)
    where = slots_of(found)
    assert found.merged == {"A"} and len(where["A"]) == 2
    assert where["C"] == where["D"] and len(where["B"]) == 1
    assert where["A"].isdisjoint(where["B"] | where["C"]) and where["B"].isdisjoint(where["C"])
    assert sorted(loads(PAPER, found, 4)) == [2, 2, 3, 3]


def test_the_basic_form_merges_nothing() -> None:
    found = basic(PAPER, 4)
    assert not found.merged and all(len(slots) == 1 for slots in slots_of(found).values())
    assert max(loads(PAPER, found, 4)) == 6


@pytest.mark.parametrize("plan", [basic, optimised])
@pytest.mark.parametrize("slots", [1, 2, 7, 64])
def test_each_operator_key_has_one_slot(plan, slots: int) -> None:  # type: ignore[no-untyped-def]
    draw = random.Random(slots)
    for keys in (0, 1, 5, 200):
        members = {key: {n: draw.choice([1, 1, 9]) for n in range(draw.randrange(1, 20))} for key in range(keys)}
        found = plan(members, slots)
        assert set(found.slots) == {(key, member) for key, own in members.items() for member in own}
        assert all(0 <= slot < slots for slot in found.slots.values())
        for key, where in slots_of(found).items():
            assert len(where) == 1 or key in found.merged


@pytest.mark.parametrize("slots", [2, 4, 16, 100])
def test_no_slot_has_much_more_than_its_share(slots: int) -> None:
    """If operator keys have equal loads."""
    draw = random.Random(slots)
    members = {key: dict.fromkeys(range(int(draw.paretovariate(1))), 1) for key in range(20 * slots)}
    total = sum(map(len, members.values()))
    most = max(loads(members, optimised(members, slots), slots))
    assert most <= 1.05 * total / slots + 2


def test_makespan() -> None:
    assert makespan([], 3) == 0
    assert makespan([5, 4, 3, 3, 3], 2) == 10  # longest first: 5 + 3, 4 + 3 + 3
    assert makespan([1] * 7, 3) == 3
