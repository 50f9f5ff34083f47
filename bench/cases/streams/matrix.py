"""Partitioning of a growing stream join into units: number of units and moved rows of four simulated planners."""

from __future__ import annotations

import heapq
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from bench.cases.streams.joins import RANGES, checked, expected_of, fed, our_ranges, streaming_session
from bench.harness import Bench, Case
from sparkext.config import STREAMS_UNIT_MAX_BYTES
from sparkext.plans.shuffle.fragments import GridShape
from sparkext.plans.shuffle.grid_size import minimise_units, moved
from sparkext.wording import format_table

NOTES = """\
Simulated, as in the paper (Wang, Fang and Zhang): 6 M rows are loaded, equally many of both sides unless the table
states another ratio. A unit holds 800,000 rows of both sides together.
MFM: whenever a unit is full, it chooses the fewest units that hold all loaded rows, among all values of γ, the number
of fragments of one side.
Fragments: a fragment has at most half of a unit's memory. New fragments are added, and existing fragments are never
divided.
Dynamic (Elseidy et al.): whenever a unit is full, the matrix doubles its rows and its columns.
Readj: keys that follow Zipf's law are hashed to buckets, which are assigned to units. Whenever a unit is full, buckets
are reassigned, the largest first. No bucket is ever divided.
Moved: the rows that units receive in addition to newly loaded rows, in millions. Planning: the slowest plan, in
milliseconds.
Bound: 4·R·S/V², the number of units without rounding, for R and S rows of the two sides and V rows per unit."""

_MEMORY = 800_000
_TOTAL = 6_000_000
_STEP = 10_000
_SHOWN = (2_000_000, 4_000_000, 5_000_000, 6_000_000)
_KEYS = 100_000
_BATCH = 200_000
_BYTES_A_ROW = 22
"""Average over points and intervals, including the bucket index of a row."""
_RATIOS = (1, 2, 4)


def cases() -> list[Case]:
    """Return the cases: the simulated planners, and a stream join that runs."""
    return [
        Case("matrix.planners", "units and moved rows of four planners", _run_planners, scaled=False, threads=1),
        Case("matrix.streams", "the units of a join of streams that grows", _run_streams, scaled=False, named=True),
    ]


class Planner(Protocol):
    """Decides the number of units, and adds up the rows that move between them."""

    units: int
    moved: float

    def load(self, left: float, right: float) -> None:
        """Continue with sides of these sizes, in rows."""
        ...


@dataclass
class Matrix:
    """A matrix for which `cut_anew` chooses a new grid shape when a unit holds more than `_MEMORY` rows."""

    cut_anew: Callable[[GridShape, float, float], GridShape]
    cut: GridShape = field(default_factory=partial(GridShape, 1, 1))
    moved: float = 0.0

    @property
    def units(self) -> int:
        return self.cut.left * self.cut.right

    def load(self, left: float, right: float) -> None:
        if left / self.cut.left + right / self.cut.right > _MEMORY:
            new = self.cut_anew(self.cut, left, right)
            self.moved += moved(self.cut, new, left, right)
            self.cut = new


@dataclass
class Fragments:
    """Fragments of at most half the memory. A new one starts empty, but its units receive all of the other side."""

    moved: float = 0.0
    left: int = 1
    right: int = 1

    @property
    def units(self) -> int:
        return self.left * self.right

    def load(self, left: float, right: float) -> None:
        wanted = [max(1, math.ceil(side / (_MEMORY / 2))) for side in (left, right)]
        self.moved += max(0, wanted[0] - self.left) * right + max(0, wanted[1] - self.right) * left
        self.left, self.right = wanted


@dataclass
class Buckets:
    """A bucket per key, in one unit. If a unit is full, all buckets are reassigned, each to the least loaded unit."""

    zipf: float
    units: int = 1
    moved: float = 0.0
    homes: Any = None
    shares: Any = field(init=False)

    def __post_init__(self) -> None:
        weights = 1 / np.arange(1, _KEYS + 1) ** self.zipf
        self.shares = weights / weights.sum()
        self.homes = np.zeros(_KEYS, dtype=np.int64)

    def load(self, left: float, right: float) -> None:
        sizes = self.shares * (left + right)
        held = np.bincount(self.homes, weights=sizes, minlength=self.units)
        if held.max() <= max(_MEMORY, sizes[0]):
            return
        self.units = max(self.units + 1, math.ceil(sizes.sum() / _MEMORY))
        lightest = [(0.0, unit) for unit in range(self.units)]
        homes = np.empty_like(self.homes)
        for key in range(_KEYS):  # from the largest to the smallest
            load, unit = lightest[0]
            homes[key] = unit
            heapq.heapreplace(lightest, (load + sizes[key], unit))
        self.moved += float(sizes[homes != self.homes].sum())
        self.homes = homes


def _least(cut: GridShape, left: float, right: float) -> GridShape:
    return minimise_units(left, right, _MEMORY)


def _twice(cut: GridShape, left: float, right: float) -> GridShape:
    return GridShape(cut.left * 2, cut.right * 2)


PLANNERS: dict[str, Callable[[], Planner]] = {
    "MFM": partial(Matrix, _least),
    "fragments": Fragments,
    "Dynamic": partial(Matrix, _twice),
    "Readj, z = 1": partial(Buckets, 1.0),
}


def simulated(planner: Planner, ratio: float) -> Iterator[tuple[int, int, float, float]]:
    """Load all rows, with `ratio` times as many left as right rows; yield rows, units, moved rows, seconds per plan."""
    for total in range(_STEP, _TOTAL + 1, _STEP):
        left = total * ratio / (1 + ratio)
        started = time.perf_counter()
        planner.load(left, total - left)
        yield total, planner.units, planner.moved, time.perf_counter() - started


def _run_planners(bench: Bench) -> None:
    rows = []
    for ratio in _RATIOS:
        bounds = [4 * total**2 * ratio / (1 + ratio) ** 2 / _MEMORY**2 for total in _SHOWN]
        rows.append((f"R = {ratio} S", "bound", *(f"{bound:.1f}" for bound in bounds), "", ""))
        for name, planner in PLANNERS.items():
            steps = list(simulated(planner(), ratio))
            units = {total: found for total, found, _, _ in steps}
            sent, slowest = steps[-1][2], max(seconds for *_, seconds in steps) * 1000
            bench.record(planner=name, ratio=ratio, units=units, moved=sent, planning_ms=slowest)
            shown = [str(units[total]) for total in _SHOWN]
            rows.append(("", name, *shown, f"{sent / 1e6:.1f}", f"{slowest:.2f}"))
    header = ("", "units at", *(f"{total / 1e6:g} M rows" for total in _SHOWN), "moved, M", "planning, ms")
    print(format_table(header, rows, left=range(2)))
    print(f"A plan of 1,000 units: {_thousand_units():.2f} ms, the median of 21.")


def _run_streams(bench: Bench) -> None:
    """Load points, by Zipf's law, and intervals into a stream join whose units have as much memory as simulated."""
    batches = _TOTAL // _BATCH - 8  # the initial state is eight more batches
    memory = bench.sized(_MEMORY) * _BYTES_A_ROW
    rows = []
    with (
        streaming_session(bench, **{STREAMS_UNIT_MAX_BYTES.name: memory}) as spark,
        fed(bench, 8 * _BATCH, _BATCH, batches, zipf=1.0) as feed,
    ):
        played = checked(spark, "sparkext", feed, our_ranges, expected_of(spark, feed, RANGES))
        [name] = played.report.operators
        loaded, most = 0, float(bench.sized(_MEMORY))
        for batch in played.report.of(name):
            simulated_units = minimise_units(max(loaded / 2, 1), max(loaded / 2, 1), most)
            if loaded * _MEMORY / most in _SHOWN or loaded == 0:
                bound = loaded**2 / most**2
                least = simulated_units.left * simulated_units.right
                rows.append((f"{loaded:,}", f"{bound:.1f}", str(least), str(batch.units)))
                bench.record(planner="run", rows=loaded, units=batch.units, least=least)
            loaded += batch.left_rows + batch.right_rows
    print(format_table(("rows of state", "bound", "MFM, least", "units, run"), rows))
    print(f"{played.answer[0]:,} pairs, compared with a join of all rows. {STREAMS_UNIT_MAX_BYTES.name} = {memory:,}")


def _thousand_units() -> float:
    side = math.sqrt(1000) * _MEMORY / 2
    seconds = []
    for _ in range(21):
        started = time.perf_counter()
        cut = minimise_units(side, side, _MEMORY)
        moved(GridShape(cut.left - 1, cut.right), cut, side, side)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) * 1000
