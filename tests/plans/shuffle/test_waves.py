"""Plans of the load balancer before a probe runs."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.shuffle.balancer import skew
from sparkext.plans.shuffle.bucket_costs import BucketCounts, CostScale, MeasuredWork
from sparkext.plans.shuffle.waves import (
    PARTITION_BUILD_BYTES,
    TABLES,
    SideCounts,
    WavePlan,
    choose_partition_count,
    count_buckets,
    plan_waves,
)
from tests.support.kernel_inputs import examples

M = 1_000_000
BUCKETS = 64


def counts_of(probe_rows: int, build_rows: int, pairs: int, build_bytes: int = 0) -> BucketCounts:
    """Return counts for rows of 50 bytes, in one block."""
    return BucketCounts(probe_rows, build_rows, pairs, 50 * probe_rows, build_bytes, 1)


def even(buckets: int, rows: int = M) -> dict[int, BucketCounts]:
    return {bucket: counts_of(rows, rows // 10, rows, 0) for bucket in range(buckets)}


def check(plan: WavePlan) -> None:
    """Assert that every bucket, including unknown ones, is joined in one partition, or in as many as it has parts."""
    parts = defaultdict(list)
    for number, partition in enumerate(plan.partitions):
        assert len({share.bucket for share in partition}) == len(partition)
        for share in partition:
            parts[share.bucket].append((share.number, share.count, number))
    assert parts.keys() == set(range(BUCKETS))
    for found in parts.values():
        assert sorted(part for part, _, _ in found) == list(range(len(found)))
        assert {count for _, count, _ in found} == {len(found)}
        assert len({partition for _, _, partition in found}) == len(found)
    assert sum(plan.after) == pytest.approx(sum(plan.before))
    assert list(plan.after) == sorted(plan.after, reverse=True), "most to do, first to begin"


def test_even_buckets_stay_where_they_are() -> None:
    plan = plan_waves(even(BUCKETS), BUCKETS, 2, most_shares=8)
    check(plan)
    assert plan.moved == 0 and skew(plan.after) < 0.2 and len(plan.partitions) > 2


def test_a_loaded_partition_gives_buckets_away() -> None:
    rows = 9 * M // 10
    buckets = even(BUCKETS, rows) | {bucket: counts_of(3 * rows, rows, 3 * rows, 0) for bucket in range(0, BUCKETS, 8)}
    plan = plan_waves(buckets, BUCKETS, 2, most_shares=8)
    check(plan)
    assert len(plan.partitions) == 8, "so that all loaded buckets are in one by hash"
    assert plan.moved > 0 and skew(plan.after) < skew(plan.before) / 2


def test_product_skew_counts() -> None:
    """A bucket with as many rows as the others, whose rows have a thousand times as many matches."""
    buckets = even(BUCKETS) | {5: counts_of(M, M // 10, 1000 * M, 0)}
    plan = plan_waves(buckets, BUCKETS, 4, most_shares=100)
    check(plan)
    assert len([partition for partition in plan.partitions if any(share.bucket == 5 for share in partition)]) > 4
    assert max(plan.after) < 1.2 * sum(plan.after) / len(plan.after) and skew(plan.before) > 10


@pytest.mark.parametrize(("most_shares", "partitions"), [(1, 1), (3, 3)])
def test_how_far_a_bucket_is_split(most_shares: int, partitions: int) -> None:
    buckets = even(BUCKETS) | {5: counts_of(1000 * M, M, 1000 * M, 0)}
    plan = plan_waves(buckets, BUCKETS, 8, most_shares=most_shares)
    check(plan)
    assert (
        len([partition for partition in plan.partitions if any(share.bucket == 5 for share in partition)]) == partitions
    )


def test_hardly_any_rows_make_one_partition() -> None:
    assert len(plan_waves({}, BUCKETS, 8, most_shares=1).partitions) == 1
    few = {3: counts_of(10, 1, 10, 100)}
    assert len(plan_waves(few, BUCKETS, 8, most_shares=1).partitions) == 1


def test_how_many_partitions() -> None:
    assert choose_partition_count(0.0, 0, 4, 64) == 1
    assert choose_partition_count(0.08, 0, 4, 64) == 3, "as many cores as there is something to do for"
    assert choose_partition_count(1.9, 0, 4, 64) == 4
    assert choose_partition_count(30.5, 0, 4, 64) == 64, "partitions of half a second, and as many for each core"
    assert choose_partition_count(2.1, 0, 4, 64) == 8, "five would keep three cores waiting"
    assert choose_partition_count(40.0, 0, 4, 30) == 30, "no more than buckets"
    assert choose_partition_count(1e-6, 10 * PARTITION_BUILD_BYTES, 4, 64) == 12, "build sides of a size"


def test_pairs_that_took_longer_are_planned_to() -> None:
    """A bucket with as many rows and slightly more pairs is hot if pairs cost fifty times as much as planned."""
    buckets = even(BUCKETS) | {5: counts_of(M, M // 10, 8 * M, 0)}
    told = plan_waves(buckets, BUCKETS, 4, most_shares=100)
    check(told)
    assert told.split == 0
    ran = [MeasuredWork(received, met, received + 50 * met) for received, met in told.work]
    plan = plan_waves(buckets, BUCKETS, 4, most_shares=100, scale=CostScale.measured(ran))
    check(plan)
    assert plan.split == 1 and len(plan.partitions) > len(told.partitions)
    assert sum(plan.after) == pytest.approx(sum(partition.took for partition in ran), rel=0.1)


@pytest.mark.parametrize(("pairs", "split"), [(10 * M, 0), (1000 * M, 1)])
def test_a_bucket_whose_owner_sees_all_rows_is_split_for_its_pairs_only(pairs: int, split: int) -> None:
    buckets = even(BUCKETS) | {5: counts_of(64 * M, M, pairs, 0)}
    plan = plan_waves(buckets, BUCKETS, 8, most_shares=100, marks=True)
    check(plan)
    assert plan.split == split
    assert plan_waves(buckets, BUCKETS, 8, most_shares=100).split == 1


def test_buckets_by_hash_are_at_home() -> None:
    buckets = even(BUCKETS) | {5: counts_of(64 * M, M, 64 * M, 0)}
    plan = plan_waves(buckets, BUCKETS, 4, most_shares=9, way="hash")
    check(plan)
    assert plan.before == plan.after and (plan.moved, plan.split) == (0, 0) and skew(plan.after) > 0.5


@pytest.mark.parametrize(
    ("needs_probe", "needs_build", "joined"),
    [(True, True, {0}), (True, False, {0, 1}), (False, False, {0, 1, 2}), (False, True, {0, 2})],
)
def test_buckets_without_rows_of_a_side(needs_probe: bool, needs_build: bool, joined: set[int]) -> None:
    probe = SideCounts(rows=[5, 5, 0, 0], sizes=[500, 500, 0, 0], sent=[50, 50, 0, 0], maps=3)
    build = SideCounts(rows=[7, 0, 7, 0], sizes=[350, 0, 350, 0], sent=[70, 0, 70, 0], maps=9)
    found = count_buckets(probe, [build, build], [35, 0, 0, 0], needs_probe=needs_probe, needs_build=needs_build)
    assert found.keys() == joined
    if 0 in joined:
        assert found[0] == BucketCounts(5, 14, 35, 500, 700, 3 + 7 + 7)


def test_bytes_tell_whether_there_are_rows() -> None:
    """Row counts of tasks may have been lost together with them."""
    side = SideCounts(rows=[0], sizes=[0], sent=[10], maps=1)
    assert count_buckets(side, [side], [0], needs_probe=True, needs_build=True).keys() == {0}


counts = st.builds(BucketCounts, *[st.one_of(st.integers(0, 100), st.integers(0, 10**9))] * 6)


@pytest.mark.parametrize("way", TABLES)
@given(st.dictionaries(st.integers(0, BUCKETS - 1), counts), st.integers(1, 16), st.integers(1, 5))
@examples(200)
def test_every_bucket_is_joined_once(way: str, buckets: dict[int, BucketCounts], cores: int, most_shares: int) -> None:
    plan = plan_waves(buckets, BUCKETS, cores, most_shares=most_shares, way=way)
    check(plan)
    whole = Fraction(0)
    for partition in plan.partitions:
        whole += sum(Fraction(1, share.count) for share in partition)
    assert whole == BUCKETS
