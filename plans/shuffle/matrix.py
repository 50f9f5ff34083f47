"""Partitioning of a join without an equality into units of a matrix (Wang, Fang and Zhang, MFM; `docs/papers.md` 3).

                build 0   build 1
    probe 0  │  unit 0    unit 1        unit (i, j) joins part i of the probe side with part j of the build side
    probe 1  │  unit 2    unit 3

Rows may meet on any condition, and no key can be hot: a part is a number of rows, whatever their values. A part is read
by all units of its row or column of the matrix. A unit reads one part of each side, half the perimeter of its
rectangle: all of its build rows at once, and its probe rows as a stream.

Only a unit that reads all of the other side can emit an unmatched row. So a join that emits unmatched probe rows does
not divide the build side. In a full outer join, additional units, the *owners*, emit the unmatched rows of parts of the
build side, and emit no pairs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from sparkext.plans.shuffle.bucket_costs import BY_UNIT_COSTS, BucketCounts
from sparkext.plans.shuffle.waves import PARTITION_BUILD_BYTES, Share, WavePlan

_MOST_AT_RANDOM = 4
_HALVES = 2


@dataclass(frozen=True)
class MatrixShape:
    """Grid shape: the number of parts of each side."""

    probe: int
    build: int


def minimise_perimeter(probe: float, build: float, units: int, memory: float, most: MatrixShape) -> MatrixShape:
    """Return the grid shape whose units read the least, among those of at most `units` units.

    It has more units only if the parts of the build side would not fit `memory` otherwise.

    Parameters
    ----------
    probe, build
        The bytes of both sides.
    units
        Units that can run at a time.
    memory
        The bytes that a unit may hold of the build side.
    most
        The most parts into which each side can be divided.
    """
    fewest = min(most.build, max(1, math.ceil(build / memory)))
    cuts = [
        MatrixShape(min(most.probe, max(1, units // columns)), columns)
        for columns in range(fewest, max(fewest, min(most.build, units)) + 1)
    ]
    return min(cuts, key=lambda cut: (probe / cut.probe + build / cut.build, cut.build))


def plan_matrix(
    counts: BucketCounts | None, cores: int, most: MatrixShape, way: str, *, full: bool = False
) -> WavePlan:
    """Return the units of a join.

    Parameters
    ----------
    counts
        The counts of both sides as a whole; None if nothing has to be joined.
    cores
        Tasks that run at a time.
    most
        See `minimise_perimeter`.
    way
        The policy, one of `waves.TABLES`: `hash` has one unit, `random` a random grid shape.
    full
        Whether it is a full outer join.
    """
    if full:
        return _plan_full_join(counts, cores, most, way)
    cut = _draw_shape(most) if way == "random" else MatrixShape(1, 1)
    if way == "planned" and counts is not None:
        cut = minimise_perimeter(counts.probe_bytes, counts.build_bytes, cores, PARTITION_BUILD_BYTES, most)
    return _plan(cut, (_estimate_load(counts, cut),) * (cut.probe * cut.build))


def _plan_full_join(counts: BucketCounts | None, cores: int, most: MatrixShape, way: str) -> WavePlan:
    """Return units that divide the probe side, and owners that divide the build side: all pairs are tried twice.

    If no more than two tasks run at a time, this would gain nothing, and one unit joins everything.
    """
    cut = _draw_shape(most) if way == "random" else MatrixShape(1, 1)
    if way == "planned" and cores > _HALVES:
        cut = MatrixShape(min(most.probe, cores), min(most.build, cores))
    owners = 0 if cut == MatrixShape(1, 1) else cut.build
    units, parts = MatrixShape(cut.probe, 1), MatrixShape(1, cut.build)
    return _plan(
        units, (_estimate_load(counts, units),) * cut.probe + (_estimate_load(counts, parts),) * owners, owners
    )


def _draw_shape(most: MatrixShape) -> MatrixShape:
    """Return a random grid shape of few parts."""
    return MatrixShape(*(random.randint(1, min(_MOST_AT_RANDOM, parts)) for parts in (most.probe, most.build)))


def _plan(cut: MatrixShape, loads: tuple[float, ...], owners: int = 0) -> WavePlan:
    units = tuple((share,) for share in _list_units(cut))
    return WavePlan(units, loads, loads, moved=0, split=0, cut=(cut.probe, cut.build), owners=owners)


def _estimate_load(counts: BucketCounts | None, cut: MatrixShape) -> float:
    return 0.0 if counts is None else BY_UNIT_COSTS.load(_divide_counts(counts, cut))


def _list_units(cut: MatrixShape) -> Sequence[Share]:
    return [Share(0, row, cut.probe, column, cut.build) for row in range(cut.probe) for column in range(cut.build)]


def _divide_counts(counts: BucketCounts, cut: MatrixShape) -> BucketCounts:
    """Return the counts of one unit. Pairs count 0, as it is unknown beforehand which pairs match."""
    return BucketCounts(
        counts.probe_rows // cut.probe,
        counts.build_rows // cut.build,
        0,
        counts.probe_bytes // cut.probe,
        counts.build_bytes // cut.build,
        counts.blocks // min(cut.probe, cut.build),
    )
