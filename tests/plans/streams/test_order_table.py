"""The table of an ordered stream: split buckets, moved buckets, and when a new table is planned."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace

import pytest

from sparkext.plans.streams.bucket_rows import BucketRows
from sparkext.plans.streams.order_table import (
    BUCKETS,
    MERGE_COST,
    OrderTable,
    compute_makespan,
    create_first_table,
    distribute_keys,
    draw_order_table,
    plan_next_table,
)


def skewed(share: float, rows: int = 100_000) -> dict[int, float]:
    """Return rows by order bucket: one bucket has this share of them, the others are equal."""
    draw = random.Random(1)
    others = draw.sample(range(BUCKETS), 500)
    return {others[0]: share * rows, **dict.fromkeys(others[1:], (1 - share) * rows / 499)}


def largest_share(table: OrderTable, rows: dict[int, float]) -> float:
    """Return the largest share of rows in one partition, if operator buckets are even."""
    loads = [sum(rows.get(bucket, 0) for bucket in table.merged) / table.partitions] * table.partitions
    for bucket, count in rows.items():
        if bucket not in table.merged:
            loads[table.whole.partitions_of(bucket)[0]] += count
    return max(loads) / sum(rows.values())


@pytest.mark.parametrize("partitions", [2, 4, 16, 100])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99])
def test_a_hot_bucket_is_split(partitions: int, share: float) -> None:
    rows = skewed(share)
    hot = max(rows, key=lambda bucket: rows[bucket])
    table = plan_next_table(create_first_table(partitions), rows, {}, may_split=True)
    assert {*table.merged} == {hot} if share > 1 / partitions else {*table.merged} <= {hot}
    assert largest_share(table, rows) <= 1.3 / partitions
    merge = MERGE_COST * rows[hot] if table.merged else 0
    assert table.load(rows) <= 1.3 * sum(rows.values()) / partitions + merge
    whole = plan_next_table(create_first_table(partitions), rows, {}, may_split=False)
    assert not whole.merged and whole.load(rows) >= rows[hot]


def test_a_table_stays_while_it_is_good() -> None:
    rows = skewed(0.5)
    table = plan_next_table(create_first_table(4), rows, {}, may_split=True)
    assert plan_next_table(table, rows, {}, may_split=True) is table
    assert plan_next_table(table, {}, {}, may_split=True) is table
    few = {bucket: count / 1000 for bucket, count in skewed(0.9).items()}
    assert plan_next_table(create_first_table(4), few, {}, may_split=True) == create_first_table(4), (
        "too few to tell anything"
    )


def test_operator_buckets_are_evened() -> None:
    rows, parts = skewed(0.5), {0: 20_000.0, 4: 20_000.0, 1: 10_000.0}
    table = plan_next_table(create_first_table(4), rows, {}, may_split=True)
    following = plan_next_table(table, rows, parts, may_split=True)
    assert following.merged == table.merged
    assert following.parts.partitions_of(0) != following.parts.partitions_of(4)
    assert plan_next_table(following, rows, parts, may_split=True) is following


def test_what_is_no_longer_hot_may_stay_split() -> None:
    """If this costs little: the bucket may become hot again, and would have to be split again."""
    rows = skewed(0.002)
    table = plan_next_table(create_first_table(4), skewed(0.5), {}, may_split=True)
    following = plan_next_table(table, rows, {}, may_split=True)
    assert following.load(rows) <= plan_next_table(create_first_table(4), rows, {}, may_split=True).load(rows) / 0.9


@pytest.mark.parametrize("partitions", [1, 3])
def test_it_is_read_back(partitions: int) -> None:
    table = draw_order_table(partitions, may_split=True)
    first = replace(table, whole=replace(table.whole, version=0), parts=replace(table.parts, version=0))
    assert OrderTable.from_data(table.to_data()) == first
    assert not draw_order_table(partitions, may_split=False).merged


def test_a_thousand_partitions_are_planned_in_time() -> None:
    draw = random.Random(1)
    rows = {bucket: draw.paretovariate(0.8) * 100 for bucket in range(BUCKETS)}
    began = time.perf_counter()
    table = plan_next_table(create_first_table(1000), rows, {}, may_split=True)
    assert time.perf_counter() - began < 30  # the benchmarks measure the actual time
    assert table.load(rows) < create_first_table(1000).load(rows)


def test_counts_fade() -> None:
    counts = BucketRows({1: 100, 2: 1}, {7: 10}).derive_next([BucketRows({1: 5, 3: 2}), BucketRows({3: 1}, {7: 1})])
    assert counts == BucketRows({1: 85, 3: 3}, {7: 9})
    assert BucketRows.from_data(counts.to_data()) == counts


@pytest.mark.parametrize("partitions", [1, 2, 3, 16, 40])
def test_keys_that_are_alike_are_dealt_out_evenly(partitions: int) -> None:
    buckets = random.Random(partitions).sample(range(BUCKETS), 32)
    table = distribute_keys(partitions, buckets)
    loads = Counter(table.whole.partitions_of(bucket)[0] for bucket in buckets)
    assert max(loads.values()) == -(-32 // partitions)
    assert not table.merged
    twice = distribute_keys(partitions, [5, 5, 7])
    assert twice.whole.partitions_of(5) == (0,) and twice.whole.partitions_of(7) == (1 % partitions,)


def test_makespan() -> None:
    assert compute_makespan([], 3) == 0
    assert compute_makespan([5, 4, 3, 3, 3], 2) == 10  # longest first: 5 + 3, 4 + 3 + 3
    assert compute_makespan([1] * 7, 3) == 3
