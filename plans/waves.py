"""What the foreman plans before a probe row is joined: the map tasks of both sides have told what each line has.

    counts of each line ──▶ slots, as many as it pays to begin ──▶ loads ──▶ foreman ──▶ lines and shares of each slot

Nothing is migrated then: the tasks of a stage take what the table gives them (`docs/papers.md` 5, in waves instead of
intervals).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkext.plans.foreman import Foreman
from sparkext.plans.line_costs import BY_UNIT_COSTS, LineCounts, Scale
from sparkext.plans.routing import RoutingTable

SLOT_SECONDS = 0.5
LEAST_SLOT_SECONDS = 0.03
"""What a slot's task does at least, where there are more slots than cores, and where there are not."""

SLOT_BUILD_BYTES = 128 << 20
"""Of a slot's build side, in memory. Each task that runs has one, beside its index."""

_THRESHOLD = 0.2
_SPLIT, _MORE_SLOTS = 1 / 3, 7


@dataclass(frozen=True)
class Share:
    """Part `number` of `count` of the probe rows of a line, with all of its build rows, or part `build` of `builds`."""

    line: int
    number: int
    count: int
    build: int = 0
    builds: int = 1


@dataclass(frozen=True)
class WavePlan:
    """What each slot joins, and its load in seconds before and after lines were moved and split, which are counted.

    The slots with most to do are first, as Spark begins with these: a core that is free takes the next one.
    `cut`: set where slots are units of a join matrix, into which no line was moved. Behind them are `owners`, each of
    which tells of a part of the build side what matches nothing: see `plans.matrix`. `work`: of slots that have lines,
    the seconds by the unit costs for what they receive, and for pairs, by which costs are measured when they have run.
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
    """Return the slots of a join, at least one.

    Parameters
    ----------
    lines
        Those that have to be joined, by number, of `line_count`.
    cores
        Tasks that run at a time.
    most_shares
        Into how many parts the probe rows of a line can be divided.
    scale
        What rows and pairs took when such a join ran before.
    marks
        Whether the owner of a line that is split receives all of its probe rows: it emits what none of them matches.
    way
        One of `TABLES`.
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
        if line not in lines:  # a map that has to run again may send some rows of it
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
    """Return how many slots there are for so much work: those that cores can work on, of some size, as are build sides.

    Where that are more than there are cores, all cores have as many.
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
"""Into how many parts a line can be divided, by its number."""


def planned_table(loads: Mapping[int, float], lines: int, slots: int, shares: Shares) -> RoutingTable:
    """Return the foreman's."""
    table = RoutingTable(lines, slots)
    foreman = Foreman(_THRESHOLD, may_split=lambda line: shares(line) > 1)
    return foreman.plan(
        table,
        _slot_loads(table, loads),
        lambda slot: {line: loads[line] for line in table.lines_of(slot) if line in loads},
    )


def hash_table(loads: Mapping[int, float], lines: int, slots: int, shares: Shares) -> RoutingTable:
    """Return that in which every line is at home."""
    return RoutingTable(lines, slots)


def random_table(loads: Mapping[int, float], lines: int, slots: int, shares: Shares) -> RoutingTable:
    """Return any, with more slots than it takes: lines are anywhere, and a third of them split."""
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
"""Ways to make a table, by name: all but the first for tests and measurements."""


def _slot_loads(table: RoutingTable, loads: Mapping[int, float]) -> list[float]:
    found = [0.0] * table.slots
    for line, load in loads.items():
        found[table.home(line)] += load
    return found


@dataclass(frozen=True)
class SideCounts:
    """What is known of one side: of each line its rows, the bytes that they take in memory, those that were sent.

    Spark knows the last for certain; the others are what `maps` tasks have said.
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
    """Return the lines that have to be joined: not those in which a side that the join needs has sent nothing."""

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
