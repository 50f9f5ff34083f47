"""The load balancer's plan of a partitioned join, made before any probe row is joined.

Its input is the counts that the map tasks of both sides have reported.

    counts per bucket ──▶ number of partitions ──▶ loads ──▶ load balancer ──▶ buckets and shares of each partition

The paper (`docs/papers.md` 5) migrates buckets after each interval. Here no bucket is migrated: the tasks of a stage,
which run in waves, join the buckets that the table assigns to them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkext.plans.shuffle.balancer import Balancer
from sparkext.plans.shuffle.bucket_costs import BY_UNIT_COSTS, BucketCounts, CostScale
from sparkext.plans.shuffle.routing import RoutingTable

PARTITION_SECONDS = 0.5
LEAST_PARTITION_SECONDS = 0.03
"""Approximate least work of a partition: `PARTITION_SECONDS` if there are more partitions than cores, else
`LEAST_PARTITION_SECONDS`."""

PARTITION_BUILD_BYTES = 128 << 20
"""Target size of a partition's build side in memory. Each running task holds one, in addition to its index."""

_THRESHOLD = 0.2
_SPLIT, _MORE_PARTITIONS = 1 / 3, 7


@dataclass(frozen=True)
class Share:
    """Part `number` of `count` of a bucket's probe rows, with part `build` of `builds` of its build rows."""

    bucket: int
    number: int
    count: int
    build: int = 0
    builds: int = 1


@dataclass(frozen=True)
class WavePlan:
    """The shares that each partition joins, and its load in seconds `before` and `after` buckets were moved and split.

    `moved` and `split` are the numbers of these buckets. The partitions with the highest loads are first, as Spark
    starts tasks in this order: a free core takes the next one. `cut`: the grid shape, if the partitions are units of a
    join matrix; no bucket is moved then. After the units there are `owners` more partitions, each of which emits the
    unmatched rows of a part of the build side: see `plans.shuffle.matrix`. `work`: for partitions of buckets, the
    seconds by the unit costs for received rows and for pairs. Once the partitions have run,
    `CostScale.measured` compares their measured seconds with `work`.
    """

    partitions: tuple[tuple[Share, ...], ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    moved: int
    split: int
    cut: tuple[int, int] | None = None
    owners: int = 0
    work: tuple[tuple[float, float], ...] = ()


def plan_waves(
    buckets: Mapping[int, BucketCounts],
    bucket_count: int,
    cores: int,
    *,
    most_shares: int,
    scale: CostScale = BY_UNIT_COSTS,
    marks: bool = False,
    way: str = "planned",
) -> WavePlan:
    """Return the plan of a join, with at least one partition.

    Parameters
    ----------
    buckets
        The counts of the buckets that have to be joined, by bucket id, of `bucket_count` buckets.
    cores
        Tasks that run at a time.
    most_shares
        The most parts into which the probe rows of a bucket can be divided.
    scale
        The measured costs of rows and pairs in an earlier run of such a join.
    marks
        Whether the owner of a split bucket receives all of its probe rows, to emit unmatched build rows.
    way
        The policy, one of `TABLES`.
    """
    loads = {bucket: scale.load(counts) for bucket, counts in buckets.items()}

    def shares(bucket: int) -> int:
        return most_shares if not marks or scale.is_mostly_pairs(buckets[bucket]) else 1

    build_bytes = sum(counts.build_bytes for counts in buckets.values())
    planned = TABLES[way](
        loads, bucket_count, choose_partition_count(sum(loads.values()), build_bytes, cores, bucket_count), shares
    )
    count = planned.partitions
    loads_before = _sum_partition_loads(RoutingTable(bucket_count, count), loads)
    partitions: list[list[Share]] = [[] for _ in range(count)]
    loads_after = [0.0] * count
    split = 0
    for bucket in buckets:
        homes = planned.partitions_of(bucket)[: max(1, shares(bucket))]
        for number, partition in enumerate(homes):
            partitions[partition].append(Share(bucket, number, len(homes)))
            loads_after[partition] += loads[bucket] / len(homes)
        split += len(homes) > 1
    for bucket in range(bucket_count):
        if bucket not in buckets:  # a map task that is run again may send rows of this bucket
            partitions[planned.home(bucket)].append(Share(bucket, 0, 1))
    moved = len(planned.moved) - split
    order = sorted(range(count), key=lambda partition: -loads_after[partition])
    return WavePlan(
        tuple(tuple(partitions[partition]) for partition in order),
        tuple(loads_before[partition] for partition in order),
        tuple(loads_after[partition] for partition in order),
        moved,
        split,
        work=tuple(_estimate_work(partitions[partition], buckets) for partition in order),
    )


def _estimate_work(partition: Sequence[Share], buckets: Mapping[int, BucketCounts]) -> tuple[float, float]:
    counted = [(buckets[share.bucket], share.count) for share in partition if share.bucket in buckets]
    return sum(counts.estimate_receive_seconds(count) for counts, count in counted), sum(
        counts.met / count for counts, count in counted
    )


def choose_partition_count(seconds: float, build_bytes: int, cores: int, most: int) -> int:
    """Return the number of partitions for a join: enough for its work and for its build side, and at most `most`.

    A number above `cores` is a multiple of `cores`, so that all cores have equally many, unless `most` is smaller.
    """
    count = max(
        math.ceil(seconds / PARTITION_SECONDS),
        min(cores, math.ceil(seconds / LEAST_PARTITION_SECONDS)),
        math.ceil(build_bytes / PARTITION_BUILD_BYTES),
    )
    if count > cores:
        count = cores * math.ceil(count / cores)
    return max(1, min(count, most))


Shares = Callable[[int], int]
"""The most parts into which a bucket can be divided, by its id."""


def plan_table(loads: Mapping[int, float], buckets: int, partitions: int, shares: Shares) -> RoutingTable:
    """Return the load balancer's table."""
    table = RoutingTable(buckets, partitions)
    balancer = Balancer(_THRESHOLD, may_split=lambda bucket: shares(bucket) > 1)
    return balancer.plan(
        table,
        _sum_partition_loads(table, loads),
        lambda partition: {bucket: loads[bucket] for bucket in table.buckets_of(partition) if bucket in loads},
    )


def build_home_table(loads: Mapping[int, float], buckets: int, partitions: int, shares: Shares) -> RoutingTable:
    """Return the table with every bucket in its home partition."""
    return RoutingTable(buckets, partitions)


def draw_table(loads: Mapping[int, float], buckets: int, partitions: int, shares: Shares) -> RoutingTable:
    """Return a random table, with more partitions than needed; at most about a third of the buckets are split."""
    partitions = min(buckets, partitions + random.randint(1, _MORE_PARTITIONS))

    def partitions_of_one(bucket: int) -> tuple[int, ...]:
        count = random.randint(1, min(partitions, shares(bucket))) if random.random() < _SPLIT else 1
        return tuple(sorted(random.sample(range(partitions), count)))

    return RoutingTable(buckets, partitions).derive_next({bucket: partitions_of_one(bucket) for bucket in loads})


TABLES: Mapping[str, Callable[[Mapping[int, float], int, int, Shares], RoutingTable]] = {
    "planned": plan_table,
    "hash": build_home_table,
    "random": draw_table,
}
"""Policies for a routing table, by name: all but the first are for tests and measurements."""


def _sum_partition_loads(table: RoutingTable, loads: Mapping[int, float]) -> list[float]:
    sums = [0.0] * table.partitions
    for bucket, load in loads.items():
        sums[table.home(bucket)] += load
    return sums


@dataclass(frozen=True)
class SideCounts:
    """Counts of one side per bucket: rows, bytes in memory (`sizes`), and bytes `sent`.

    `sent` is from Spark's map statuses: rounded, but 0 only if nothing was sent. The other counts are sums of the
    reports of `maps` map tasks, in which a task that ran twice counts twice.
    """

    rows: Sequence[int]
    sizes: Sequence[int]
    sent: Sequence[int]
    maps: int


def count_buckets(
    probe: SideCounts,
    builds: Sequence[SideCounts],
    pairs: Sequence[int],
    *,
    needs_probe: bool,
    needs_build: bool,
) -> dict[int, BucketCounts]:
    """Return the counts of the buckets that have to be joined.

    A bucket is left out if nothing was sent, or nothing of a side that the join needs.
    """

    def list_counts() -> Iterator[tuple[int, BucketCounts]]:
        for bucket, pair_count in enumerate(pairs):
            sent, sent_builds = probe.sent[bucket], sum(build.sent[bucket] for build in builds)
            if (sent or not needs_probe) and (sent_builds or not needs_build) and sent + sent_builds:
                yield (
                    bucket,
                    BucketCounts(
                        probe.rows[bucket],
                        sum(build.rows[bucket] for build in builds),
                        pair_count,
                        probe.sizes[bucket],
                        sum(build.sizes[bucket] for build in builds),
                        sum(min(side.rows[bucket], side.maps) for side in (probe, *builds)),
                    ),
                )

    return dict(list_counts())
