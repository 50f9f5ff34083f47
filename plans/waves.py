"""What the foreman plans before a probe row is joined: the map tasks of both sides have told what each line has.

    counts of each line ──▶ slots, as many as it pays to begin ──▶ loads ──▶ foreman ──▶ lines and shares of each slot

Nothing is migrated then: the tasks of a stage take what the table gives them (`papers.md` 5, in waves instead of
intervals).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkext.plans.foreman import Counts, Foreman, UnitCosts
from sparkext.plans.routing import RoutingTable

COSTS = UnitCosts(received=60e-9, compared=10e-9, produced=20e-9)
"""Seconds for a row: read as a cell and looked up or indexed, met, and emitted. Measured, of some columns."""

SLOT_SECONDS = 1.0
LEAST_SLOT_SECONDS = 0.05
"""What a slot's task does at least, where there are more slots than cores, and where there are not."""

SLOT_BUILD_BYTES = 128 << 20
"""Of a slot's build side, in memory. Each task that runs has one, beside its index."""

_THRESHOLD = 0.2


@dataclass(frozen=True)
class LineCounts:
    """What the map tasks have told of one line: rows of both sides, pairs of equal keys, bytes of builds."""

    probe_rows: int
    build_rows: int
    pairs: int
    build_bytes: int

    @property
    def load(self) -> float:
        """The seconds that it takes to join it."""
        return Counts(self.probe_rows + self.build_rows, self.pairs, self.pairs).load(COSTS)


@dataclass(frozen=True)
class Share:
    """Part `number` of `count` of the probe rows of a line, with all of its build rows."""

    line: int
    number: int
    count: int


@dataclass(frozen=True)
class WavePlan:
    """What each slot joins, and its load in seconds before and after lines were moved and split, which are counted."""

    slots: tuple[tuple[Share, ...], ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    moved: int
    split: int


def wave_plan(lines: Mapping[int, LineCounts], line_count: int, cores: int, *, most_shares: int) -> WavePlan:
    """Return the slots of a join, at least one.

    Parameters
    ----------
    lines
        Those that have to be joined, by number, of `line_count`.
    cores
        Tasks that run at a time.
    most_shares
        Into how many parts the probe rows of a line can be divided.
    """
    loads = {line: counts.load for line, counts in lines.items()}
    count = slot_count(list(lines.values()), cores, line_count)
    table = RoutingTable(line_count, count)
    before = _slot_loads(table, loads)
    foreman = Foreman(_THRESHOLD, may_split=most_shares > 1)
    planned = foreman.plan(
        table, before, lambda slot: {line: loads[line] for line in table.lines_of(slot) if line in loads}
    )
    slots: list[list[Share]] = [[] for _ in range(count)]
    after = [0.0] * count
    split = 0
    for line in lines:
        homes = planned.slots_of(line)[: max(1, most_shares)]
        for number, slot in enumerate(homes):
            slots[slot].append(Share(line, number, len(homes)))
            after[slot] += loads[line] / len(homes)
        split += len(homes) > 1
    moved = len(planned.moved) - split
    return WavePlan(tuple(map(tuple, slots)), tuple(before), tuple(after), moved, split)


def slot_count(lines: Sequence[LineCounts], cores: int, most: int) -> int:
    """Return how many slots there are: those that cores can work on, of some size, whose build sides have one, too."""
    seconds = sum(line.load for line in lines)
    wanted = max(
        math.ceil(seconds / SLOT_SECONDS),
        min(cores, math.ceil(seconds / LEAST_SLOT_SECONDS)),
        math.ceil(sum(line.build_bytes for line in lines) / SLOT_BUILD_BYTES),
    )
    return max(1, min(wanted, most))


def _slot_loads(table: RoutingTable, loads: Mapping[int, float]) -> list[float]:
    found = [0.0] * table.slots
    for line, load in loads.items():
        found[table.home(line)] += load
    return found


def counted(
    probe_rows: Sequence[int],
    build_rows: Sequence[int],
    pairs: Sequence[int],
    probe_bytes: Sequence[int],
    build_bytes: Sequence[int],
    build_sizes: Sequence[int],
    *,
    needs_probe: bool,
    needs_build: bool,
) -> dict[int, LineCounts]:
    """Return the lines that have to be joined: not those in which a side that the join needs has no row.

    Bytes tell whether there is any, as Spark knows them for certain; rows are what tasks have said, and sizes, which
    those take in memory.
    """

    def found() -> Iterator[tuple[int, LineCounts]]:
        told = zip(probe_rows, build_rows, pairs, probe_bytes, build_bytes, build_sizes, strict=True)
        for line, (rows, built, met, sent, sent_builds, size) in enumerate(told):
            if (sent or not needs_probe) and (sent_builds or not needs_build) and sent + sent_builds:
                yield line, LineCounts(rows, built, met, size)

    return dict(found())
