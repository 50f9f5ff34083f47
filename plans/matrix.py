"""How a join without an equality is divided: into units of a matrix (Wang, Fang and Zhang, MFM; `docs/papers.md` 3).

                build 0   build 1
    probe 0  │  unit 0    unit 1        unit (i, j) joins part i of the probe side with part j of the build side
    probe 1  │  unit 2    unit 3

Rows may meet on any condition, and no key can be hot: a part is some rows, whatever is in them. All units of its row,
or column, read it, so a unit reads half its perimeter: build rows all at once, and probe rows as they pass.

What a row is without a match, one unit has to tell that reads all of the other side. For rows of the probe side the
build side is not divided then; of a full outer join, *owners* tell it for parts of the build side, and emit no pair.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from sparkext.plans.line_costs import BY_UNIT_COSTS, LineCounts
from sparkext.plans.waves import SLOT_BUILD_BYTES, Share, WavePlan

_MOST_AT_RANDOM = 4
_HALVES = 2


@dataclass(frozen=True)
class Cut:
    """Into how many parts each side is divided."""

    probe: int
    build: int


def least_perimeter(probe: float, build: float, units: int, memory: float, most: Cut) -> Cut:
    """Return the cut whose units read least, of those that have no more units, but for what takes more.

    Parameters
    ----------
    probe, build
        The bytes of both sides.
    units
        As many as can work at a time.
    memory
        The bytes that a unit may have of the build side.
    most
        Into how many parts each side can be divided.
    """
    fewest = min(most.build, max(1, math.ceil(build / memory)))
    cuts = [
        Cut(min(most.probe, max(1, units // columns)), columns)
        for columns in range(fewest, max(fewest, min(most.build, units)) + 1)
    ]
    return min(cuts, key=lambda cut: (probe / cut.probe + build / cut.build, cut.build))


def matrix_plan(counts: LineCounts | None, cores: int, most: Cut, way: str, *, full: bool = False) -> WavePlan:
    """Return the units of a join.

    Parameters
    ----------
    counts
        Of all rows of both sides; None if nothing has to be joined.
    cores
        Tasks that run at a time.
    most
        See `least_perimeter`.
    way
        One of `waves.TABLES`: `hash` has one unit, `random` any cut.
    full
        Whether it is a full outer join.
    """
    if full:
        return _full_plan(counts, cores, most, way)
    cut = _drawn(most) if way == "random" else Cut(1, 1)
    if way == "planned" and counts is not None:
        cut = least_perimeter(counts.probe_bytes, counts.build_bytes, cores, SLOT_BUILD_BYTES, most)
    return _plan(cut, (_load(counts, cut),) * (cut.probe * cut.build))


def _full_plan(counts: LineCounts | None, cores: int, most: Cut, way: str) -> WavePlan:
    """Return units that divide the probe side, and owners that divide the build side: each half tries all pairs.

    Where no more tasks run at a time than it takes to make up for that, one unit has everything.
    """
    cut = _drawn(most) if way == "random" else Cut(1, 1)
    if way == "planned" and cores > _HALVES:
        cut = Cut(min(most.probe, cores), min(most.build, cores))
    owners = 0 if cut == Cut(1, 1) else cut.build
    units, parts = Cut(cut.probe, 1), Cut(1, cut.build)
    return _plan(units, (_load(counts, units),) * cut.probe + (_load(counts, parts),) * owners, owners)


def _drawn(most: Cut) -> Cut:
    """Return any cut into few parts."""
    return Cut(*(random.randint(1, min(_MOST_AT_RANDOM, parts)) for parts in (most.probe, most.build)))


def _plan(cut: Cut, loads: tuple[float, ...], owners: int = 0) -> WavePlan:
    units = tuple((share,) for share in _units(cut))
    return WavePlan(units, loads, loads, moved=0, split=0, cut=(cut.probe, cut.build), owners=owners)


def _load(counts: LineCounts | None, cut: Cut) -> float:
    return 0.0 if counts is None else BY_UNIT_COSTS.load(_part(counts, cut))


def _units(cut: Cut) -> Sequence[Share]:
    return [Share(0, row, cut.probe, column, cut.build) for row in range(cut.probe) for column in range(cut.build)]


def _part(counts: LineCounts, cut: Cut) -> LineCounts:
    """Return what a unit has of it. Which pairs meet, and come out, is not known before."""
    return LineCounts(
        counts.probe_rows // cut.probe,
        counts.build_rows // cut.build,
        0,
        counts.probe_bytes // cut.probe,
        counts.build_bytes // cut.build,
        counts.cells // min(cut.probe, cut.build),
    )
