"""Partitioning of a join without an equality into units of a matrix (Wang, Fang and Zhang, MFM; `docs/papers.md` 3).

                build 0   build 1
    probe 0  │  unit 0    unit 1        unit (i, j) joins part i of the probe side with part j of the build side
    probe 1  │  unit 2    unit 3

Rows may meet on any condition, and no key can be hot: a part is a number of rows, whatever their values. A part is read
by all units of its row or column of the matrix. A unit reads one part of each side: all of its build rows at once, and
its probe rows as a stream.

Only a unit that reads all of the other side can emit an unmatched row. So a join that emits unmatched probe rows does
not divide the build side. In a full outer join, additional units, the *owners*, emit the unmatched rows of parts of the
build side, and emit no pairs.
"""

from __future__ import annotations

from sparkext.plans.shuffle.bucket_costs import BY_UNIT_COSTS, BucketCounts
from sparkext.plans.shuffle.fragments import GridShape
from sparkext.plans.shuffle.grid_size import draw_shape, minimise_perimeter
from sparkext.plans.shuffle.waves import PARTITION_BUILD_BYTES, Share, WavePlan

_MOST_AT_RANDOM = 4
_HALVES = 2


def plan_matrix(
    counts: BucketCounts | None, cores: int, most: GridShape, policy: str, *, full: bool = False
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
    policy
        One of `waves.TABLES`: `hash` has one unit, `random` a random grid shape.
    full
        Whether it is a full outer join.
    """
    if full:
        return _plan_full_join(counts, cores, most, policy)
    shape = _draw_small_shape(most) if policy == "random" else GridShape(1, 1)
    if policy == "planned" and counts is not None:
        shape = minimise_perimeter(counts.probe_bytes, counts.build_bytes, cores, PARTITION_BUILD_BYTES, most)
    return _plan(shape, (_estimate_load(counts, shape),) * (shape.left * shape.right))


def _plan_full_join(counts: BucketCounts | None, cores: int, most: GridShape, policy: str) -> WavePlan:
    """Return units that divide the probe side, and owners that divide the build side: all pairs are tried twice.

    If no more than two tasks run at a time, this would gain nothing, and one unit joins everything.
    """
    shape = _draw_small_shape(most) if policy == "random" else GridShape(1, 1)
    if policy == "planned" and cores > _HALVES:
        shape = GridShape(min(most.left, cores), min(most.right, cores))
    owners = 0 if shape == GridShape(1, 1) else shape.right
    units, parts = GridShape(shape.left, 1), GridShape(1, shape.right)
    return _plan(
        units, (_estimate_load(counts, units),) * shape.left + (_estimate_load(counts, parts),) * owners, owners
    )


def _draw_small_shape(most: GridShape) -> GridShape:
    return draw_shape(min(_MOST_AT_RANDOM, most.left), min(_MOST_AT_RANDOM, most.right))


def _plan(shape: GridShape, loads: tuple[float, ...], owners: int = 0) -> WavePlan:
    units = tuple((Share(0, row, shape.left, column, shape.right),) for row, column in shape.units)
    return WavePlan(units, loads, loads, moved=0, split=0, cut=(shape.left, shape.right), owners=owners)


def _estimate_load(counts: BucketCounts | None, shape: GridShape) -> float:
    return 0.0 if counts is None else BY_UNIT_COSTS.load(_divide_counts(counts, shape))


def _divide_counts(counts: BucketCounts, shape: GridShape) -> BucketCounts:
    """Return the counts of one unit. Pairs count 0, as it is unknown beforehand which pairs match."""
    return BucketCounts(
        counts.probe_rows // shape.left,
        counts.build_rows // shape.right,
        0,
        counts.probe_bytes // shape.left,
        counts.build_bytes // shape.right,
        counts.blocks // min(shape.left, shape.right),
    )
