"""The cost of each bucket of a partitioned join, by unit costs or by the measured seconds of an earlier run.

    L = N_recv · T_recv + N_comp · T_comp + N_send · T_send

is the load balancer's formula (`docs/papers.md` 5). The cost of a pair depends on the join: a condition in addition to
the key, or the expressions over its result, may cost fifty times as much as the join itself. So partitions report their
seconds, and the next plan of such a join uses the measured unit costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sparkext.plans.shuffle.balancer import RowCounts, UnitCosts

COSTS = UnitCosts(received=3e-9, compared=2e-9, produced=5e-9)
"""Seconds to look up a probe row, to compare a pair, and to emit a row."""

SECONDS_PER_BUILD_ROW = 25e-9
SECONDS_PER_ROW_OF_SEVERAL = 22e-9
"""Seconds to index a build row, and to emit a probe row with several matches, whose columns have to be repeated."""

SECONDS_PER_BYTE = 0.8e-9
SECONDS_PER_BLOCK = 70e-6
"""Seconds to read received rows: per byte in memory, and per block. There is at least one block per bucket and map
task.

Measured together: joins of 4 M rows with 1, 2, 4 and 16 matches each, of Zipf keys, of lineitem and orders with four
and with nine columns took 0.8 to 1.25 times the planned seconds."""

_LEAST_MEASURED = 0.1
"""With fewer seconds of work in all partitions together, the cost of a row cannot be measured."""

_PRIOR = 0.0001
_PRIOR_RECEIVED = 0.1
"""Weights of the unit costs against the measured seconds. The weight for received rows is larger, as their cost hardly
depends on the join: if all partitions have the same mixture of rows and pairs, the fit changes the cost of pairs."""

_LEAST_SCALE = 0.05


@dataclass(frozen=True)
class BucketCounts:
    """Counts of one bucket, as map tasks reported them: rows of both sides, pairs of equal keys, bytes, and blocks."""

    probe_rows: int
    build_rows: int
    pairs: int
    probe_bytes: int
    build_bytes: int
    blocks: int

    @property
    def received(self) -> float:
        """The seconds to receive its rows, by the unit costs."""
        return self.estimate_receive_seconds(1)

    def estimate_receive_seconds(self, partitions: int) -> float:
        """Return the seconds of one of the partitions that share the probe rows. Each receives all build rows."""
        build = self.build_rows * SECONDS_PER_BUILD_ROW + self.build_bytes * SECONDS_PER_BYTE
        return self.probe_received / partitions + build + self.blocks * SECONDS_PER_BLOCK

    @property
    def probe_received(self) -> float:
        """The seconds to receive the probe rows, without the cost of their blocks."""
        return RowCounts(self.probe_rows, 0, 0).load(COSTS) + self.probe_bytes * SECONDS_PER_BYTE

    @property
    def met(self) -> float:
        """The seconds to compare and produce pairs, by the unit costs."""
        repeated_rows = min(self.probe_rows, max(0, self.pairs - self.probe_rows))
        return RowCounts(0, self.pairs, self.pairs).load(COSTS) + repeated_rows * SECONDS_PER_ROW_OF_SEVERAL


class MeasuredWork(NamedTuple):
    """The work of a partition that has run, by the unit costs of `BucketCounts`, and the measured seconds (`took`)."""

    received: float
    met: float
    took: float


@dataclass(frozen=True)
class CostScale:
    """The costs of receiving rows and of processing pairs, as multiples of the unit costs."""

    received: float = 1.0
    met: float = 1.0

    def load(self, counts: BucketCounts) -> float:
        """Return the seconds to join a bucket."""
        return self.received * counts.received + self.met * counts.met

    def is_mostly_pairs(self, counts: BucketCounts) -> bool:
        """Whether a bucket's pairs cost more than receiving its probe rows."""
        return self.met * counts.met > self.received * counts.probe_received

    @classmethod
    def measured(cls, partitions: Iterable[MeasuredWork]) -> CostScale:
        """Return the least-squares fit to the measured seconds of all partitions; 1 if there is too little work.

        If all partitions have the same mixture of rows and pairs, the difference from the unit costs is attributed
        mainly to pairs.
        """
        work = [*partitions]
        if sum(partition.took for partition in work) < _LEAST_MEASURED:
            return cls()
        differences = [partition.took - partition.received - partition.met for partition in work]
        received = sum(partition.received**2 for partition in work)
        met = sum(partition.met**2 for partition in work)
        products = sum(partition.received * partition.met for partition in work)
        if received + met == 0:
            return cls()
        by_received = sum(
            partition.received * difference for partition, difference in zip(work, differences, strict=True)
        )
        by_met = sum(partition.met * difference for partition, difference in zip(work, differences, strict=True))
        prior = _PRIOR * (received + met)
        received, met = received * (1 + _PRIOR_RECEIVED) + prior, met + prior
        determinant = received * met - products**2
        more_received = (by_received * met - by_met * products) / determinant
        more_met = (by_met * received - by_received * products) / determinant
        return cls(max(_LEAST_SCALE, 1 + more_received), max(_LEAST_SCALE, 1 + more_met))


BY_UNIT_COSTS = CostScale()
