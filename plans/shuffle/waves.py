"""The load balancer's plan of a partitioned join, made before any probe row is joined.

Its input are the counts that the map tasks of both sides have reported. In the code, a bucket is a `line`, a partition
a `slot`, and the load balancer a `Foreman`.

    counts per bucket ──▶ number of partitions ──▶ loads ──▶ load balancer ──▶ buckets and shares of each partition

The paper (`docs/papers.md` 5) migrates buckets after each interval. Here no bucket is migrated: the tasks of a stage,
which run in waves, join the buckets that the table assigns to them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkext.plans.shuffle.balancer import Foreman
from sparkext.plans.shuffle.bucket_costs import BY_UNIT_COSTS, LineCounts, Scale
from sparkext.plans.shuffle.routing import RoutingTable

SLOT_SECONDS = 0.5
LEAST_SLOT_SECONDS = 0.03
"""Approximate least work of a partition: `SLOT_SECONDS` if there are more partitions than cores, else
`LEAST_SLOT_SECONDS`."""

SLOT_BUILD_BYTES = 128 << 20
"""Target size of a partition's build side in memory. Each running task holds one, in addition to its index."""

_THRESHOLD = 0.2
_SPLIT, _MORE_SLOTS = 1 / 3, 7


@dataclass(frozen=True)
class Share:
    """Part `number` of `count` of a bucket's probe rows, with part `build` of `builds` of its build rows."""

    line: int
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
    seconds by the unit costs for received rows and for pairs. Once the partitions have run, `Scale.measured` compares
    their measured seconds with `work`.
    """

    slots: tuple[tuple[Share, ...], ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    moved: int
    split: int
    cut: tuple[int, int] | None = None
    owners: int = 0
    work: tuple[tuple[float, float], ...] = ()


def wave_plan(
    lines: Mapping[int, LineCounts],
    line_count: int,
    cores: int,
    *,
    most_shares: int,
    scale: Scale = BY_UNIT_COSTS,
    marks: bool = False,
    way: str = "planned",
) -> WavePlan:
    """Return the plan of a join, with at least one partition.

    Parameters
    ----------
    lines
        The counts of the buckets that have to be joined, by bucket id, of `line_count` buckets.
    cores
        Tasks that run at a time.
    most_shares
        The most parts into which the probe rows of a bucket can be divided.
    scale
        The measured costs of rows and pairs in an earlier run of such a join.
    marks
        Whether the owner of a split bucket receives all of its probe rows, to emit the build rows that none matches.
    way
        The policy, one of `TABLES`.
    """
    loads = {line: scale.load(counts) for line, counts in lines.items()}

    def shares(line: int) -> int:
        return most_shares if not marks or scale.mostly_pairs(lines[line]) else 1

    build_bytes = sum(counts.build_bytes for counts in lines.values())
    planned = TABLES[way](loads, line_count, slot_count(sum(loads.values()), build_bytes, cores, line_count), shares)
    count = planned.slots
    before = _slot_loads(RoutingTable(line_count, count), loads)
    slots: list[list[Share]] = [[] for _ in range(count)]
    after = [0.0] * count
    split = 0
    for line in lines:
        homes = planned.slots_of(line)[: max(1, shares(line))]
        for number, slot in enumerate(homes):
            slots[slot].append(Share(line, number, len(homes)))
            after[slot] += loads[line] / len(homes)
        split += len(homes) > 1
    for line in range(line_count):
        if line not in lines:  # a map task that is run again may send rows of this bucket
            slots[planned.home(line)].append(Share(line, 0, 1))
    moved = len(planned.moved) - split
    first = sorted(range(count), key=lambda slot: -after[slot])
    return WavePlan(
        tuple(tuple(slots[slot]) for slot in first),
        tuple(before[slot] for slot in first),
        tuple(after[slot] for slot in first),
        moved,
        split,
        work=tuple(_work(slots[slot], lines) for slot in first),
    )


def _work(slot: Sequence[Share], lines: Mapping[int, LineCounts]) -> tuple[float, float]:
    known = [(lines[share.line], share.count) for share in slot if share.line in lines]
    return sum(counts.received_by(count) for counts, count in known), sum(counts.met / count for counts, count in known)


def slot_count(seconds: float, build_bytes: int, cores: int, most: int) -> int:
    """Return the number of partitions for a join: enough for its work and for its build side, and at most `most`.

    A number above `cores` is a multiple of `cores`, so that all cores have equally many, unless `most` is smaller.
    """
    wanted = max(
        math.ceil(seconds / SLOT_SECONDS),
        min(cores, math.ceil(seconds / LEAST_SLOT_SECONDS)),
        math.ceil(build_bytes / SLOT_BUILD_BYTES),
    )
    if wanted > cores:
        wanted = cores * math.ceil(wanted / cores)
    return max(1, min(wanted, most))


Shares = Callable[[int], int]
"""The most parts into which a bucket can be divided, by its id."""


def planned_table(loads: Mapping[int, float], lines: int, slots: int, shares: Shares) -> RoutingTable:
    """Return the load balancer's table."""
    table = RoutingTable(lines, slots)
    foreman = Foreman(_THRESHOLD, may_split=lambda line: shares(line) > 1)
    return foreman.plan(
        table,
        _slot_loads(table, loads),
        lambda slot: {line: loads[line] for line in table.lines_of(slot) if line in loads},
    )


def hash_table(loads: Mapping[int, float], lines: int, slots: int, shares: Shares) -> RoutingTable:
    """Return the table with every bucket in its home partition."""
    return RoutingTable(lines, slots)


def random_table(loads: Mapping[int, float], lines: int, slots: int, shares: Shares) -> RoutingTable:
    """Return a random table, with more partitions than needed; at most about a third of the buckets are split."""
    slots = min(lines, slots + random.randint(1, _MORE_SLOTS))

    def slots_of_one(line: int) -> tuple[int, ...]:
        count = random.randint(1, min(slots, shares(line))) if random.random() < _SPLIT else 1
        return tuple(sorted(random.sample(range(slots), count)))

    return RoutingTable(lines, slots).followed({line: slots_of_one(line) for line in loads})


TABLES: Mapping[str, Callable[[Mapping[int, float], int, int, Shares], RoutingTable]] = {
    "planned": planned_table,
    "hash": hash_table,
    "random": random_table,
}
"""Policies for a routing table, by name: all but the first are for tests and measurements."""


def _slot_loads(table: RoutingTable, loads: Mapping[int, float]) -> list[float]:
    found = [0.0] * table.slots
    for line, load in loads.items():
        found[table.home(line)] += load
    return found


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


def counted(
    probe: SideCounts,
    builds: Sequence[SideCounts],
    pairs: Sequence[int],
    *,
    needs_probe: bool,
    needs_build: bool,
) -> dict[int, LineCounts]:
    """Return the counts of the buckets that have to be joined.

    A bucket is left out if nothing was sent, or nothing of a side that the join needs.
    """

    def found() -> Iterator[tuple[int, LineCounts]]:
        for line, met in enumerate(pairs):
            sent, sent_builds = probe.sent[line], sum(build.sent[line] for build in builds)
            if (sent or not needs_probe) and (sent_builds or not needs_build) and sent + sent_builds:
                yield (
                    line,
                    LineCounts(
                        probe.rows[line],
                        sum(build.rows[line] for build in builds),
                        met,
                        probe.sizes[line],
                        sum(build.sizes[line] for build in builds),
                        sum(min(side.rows[line], side.maps) for side in (probe, *builds)),
                    ),
                )

    return dict(found())
