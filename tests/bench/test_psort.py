"""P-SORT's tables: the example of the paper, its rules, and their consequences."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from bench.cases.streams.psort import Assignment, Members, assign_basic, assign_optimised

PAPER: Members = {
    device: {f"{device}{number}": 1 for number in range(sensors)}
    for device, sensors in (("A", 6), ("B", 2), ("C", 1), ("D", 1))
}


def loads(members: Members, found: Assignment, partitions: int) -> list[int]:
    weights = Counter[int]()
    for (key, member), partition in found.partitions.items():
        weights[partition] += members[key][member]
    return [weights[partition] for partition in range(partitions)]


def partitions_of(found: Assignment) -> Mapping[object, set[int]]:
    partitions: dict[object, set[int]] = {}
    for (key, _), partition in found.partitions.items():
        partitions.setdefault(key, set()).add(partition)
    return partitions


def test_the_example_of_the_paper() -> None:
    """10 sensors on 4 cores: A is split over two, B has one, C and D share one."""
    found = assign_optimised(PAPER, 4)
    where = partitions_of(found)
    assert found.merged == {"A"} and len(where["A"]) == 2
    assert where["C"] == where["D"] and len(where["B"]) == 1
    assert where["A"].isdisjoint(where["B"] | where["C"]) and where["B"].isdisjoint(where["C"])
    assert sorted(loads(PAPER, found, 4)) == [2, 2, 3, 3]


def test_the_basic_form_merges_nothing() -> None:
    found = assign_basic(PAPER, 4)
    assert not found.merged and all(len(partitions) == 1 for partitions in partitions_of(found).values())
    assert max(loads(PAPER, found, 4)) == 6


@pytest.mark.parametrize("plan", [assign_basic, assign_optimised])
@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
def test_each_operator_key_has_one_partition(plan, partitions: int) -> None:  # type: ignore[no-untyped-def]
    draw = random.Random(partitions)
    for keys in (0, 1, 5, 200):
        members = {key: {n: draw.choice([1, 1, 9]) for n in range(draw.randrange(1, 20))} for key in range(keys)}
        found = plan(members, partitions)
        assert set(found.partitions) == {(key, member) for key, own in members.items() for member in own}
        assert all(0 <= partition < partitions for partition in found.partitions.values())
        for key, where in partitions_of(found).items():
            assert len(where) == 1 or key in found.merged


@pytest.mark.parametrize("partitions", [2, 4, 16, 100])
def test_no_partition_has_much_more_than_its_share(partitions: int) -> None:
    """If operator keys have equal loads."""
    draw = random.Random(partitions)
    members = {key: dict.fromkeys(range(int(draw.paretovariate(1))), 1) for key in range(20 * partitions)}
    total = sum(map(len, members.values()))
    most = max(loads(members, assign_optimised(members, partitions), partitions))
    assert most <= 1.05 * total / partitions + 2
