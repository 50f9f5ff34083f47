"""Plans of the load balancer: recomputed loads, and bounds that every such plan satisfies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkext.plans.shuffle.balancer import Balancer, RowCounts, UnitCosts, skew
from sparkext.plans.shuffle.routing import RoutingTable

ALPHA = 0.3
hot_and_cold = st.one_of(st.integers(0, 3), st.integers(0, 1000)).map(float)


def loads_of(table: RoutingTable, buckets: Sequence[float]) -> list[float]:
    """Return the loads of partitions. The load of a split bucket is divided evenly."""
    loads = [0.0] * table.partitions
    for bucket, load in enumerate(buckets):
        for partition in table.partitions_of(bucket):
            loads[partition] += load / len(table.partitions_of(bucket))
    return loads


class Asked:
    """Returns the loads of a partition's buckets, and records for which partitions."""

    def __init__(self, table: RoutingTable, buckets: Sequence[float]) -> None:
        self.table, self.buckets, self.partitions = table, buckets, list[int]()

    def __call__(self, partition: int) -> Mapping[int, float]:
        self.partitions.append(partition)
        buckets = self.table.buckets_of(partition)
        return {
            bucket: self.buckets[bucket] / len(self.table.partitions_of(bucket))
            for bucket in buckets
            if self.buckets[bucket]
        }


def planned(table: RoutingTable, buckets: Sequence[float], may_split: bool = True) -> tuple[RoutingTable, Asked]:
    asked = Asked(table, buckets)
    return Balancer(ALPHA, lambda bucket: may_split).plan(table, loads_of(table, buckets), asked), asked


def test_load_and_skew_are_those_of_the_paper() -> None:
    assert RowCounts(10, 20, 30).load(UnitCosts(1e-3, 1e-4, 1e-5)) == pytest.approx(0.0123)
    assert skew([1.0, 2.0, 3.0]) == pytest.approx(1.0)
    assert skew([0.0, 0.0]) == skew([]) == skew([5.0]) == 0.0


@given(st.integers(1, 7), st.lists(hot_and_cold, min_size=1, max_size=40), st.booleans())
@example(6, [1.0, 2.0, 1.0, 1.0, 3.0], True)
def test_plans(partitions: int, buckets: list[float], may_split: bool) -> None:
    table = RoutingTable(len(buckets), partitions)
    before = loads_of(table, buckets)
    after_table, asked = planned(table, buckets, may_split)
    after = loads_of(after_table, buckets)
    mean = sum(buckets) / partitions
    if skew(before) <= ALPHA:
        assert after_table is table and not asked.partitions
        return
    assert sum(after) == pytest.approx(sum(before))
    assert may_split or all(len(after_table.partitions_of(bucket)) == 1 for bucket in range(len(buckets)))
    assert len(asked.partitions) == len({*asked.partitions})
    loaded = [partition for partition, load in enumerate(before) if load > sum(before) / partitions]
    # More partitions may follow, which were overloaded temporarily by buckets that were moved to them during planning.
    assert asked.partitions[: len(loaded)] == loaded
    # A bound of every plan that moves to the lightest: above the mean by one bucket at most, and hot buckets are split.
    longest = min(max(buckets), mean * (1 + ALPHA / 2)) if may_split else max(buckets)
    assert max(after) <= max(mean * (1 + ALPHA / 2), mean + longest) * (1 + 1e-9)


@given(st.integers(2, 20), st.integers(0, 19), st.integers(2, 10))
def test_many_buckets_of_one_loaded_partition(partitions: int, loaded: int, times: int) -> None:
    """The skew of the paper: all buckets of one partition have more rows. The plan leaves at most a bucket's load."""
    table = RoutingTable(50 * partitions, partitions)
    buckets = [float(times if table.home(bucket) == loaded % partitions else 1) for bucket in range(50 * partitions)]
    after, asked = planned(table, buckets)
    if skew(loads_of(table, buckets)) > ALPHA:
        assert asked.partitions[:1] == [loaded % partitions]
        assert all(len(after.partitions_of(bucket)) == 1 for bucket in after.moved)
    assert skew(loads_of(after, buckets)) <= ALPHA


@pytest.mark.parametrize("partitions", [2, 3, 16])
def test_one_bucket_has_all_rows(partitions: int) -> None:
    buckets = [0.0] * 99 + [1000.0]
    table = RoutingTable(100, partitions)
    after, _ = planned(table, buckets)
    assert {*after.partitions_of(99)} == {*range(partitions)} and skew(loads_of(after, buckets)) == pytest.approx(0)
    assert planned(table, buckets, may_split=False)[0].moved == {}


def test_zipf() -> None:
    buckets = [1000 / (1 + (number * 617) % 1000) for number in range(1000)]
    table = RoutingTable(1000, 100)
    after, _ = planned(table, buckets)
    assert skew(loads_of(table, buckets)) > 10 and skew(loads_of(after, buckets)) <= ALPHA
    # Split buckets remain where they are, and so does the table once loads are even.
    assert planned(after, buckets)[0] is after


def test_plans_from_a_table_with_split_buckets() -> None:
    """A bucket that became hotter is split over more partitions, including those that have its build rows."""
    table = RoutingTable(8, 4, {1: (1, 2)})
    buckets = [1.0, 100.0, *[1.0] * 6]
    after, _ = planned(table, buckets)
    assert {1, 2} <= {*after.partitions_of(1)} == {0, 1, 2, 3}
