"""The cost of each line of a partitioned join, by unit costs or by the measured seconds of an earlier run.

    L = N_recv · T_recv + N_comp · T_comp + N_send · T_send

is the foreman's formula (`docs/papers.md` 5). The cost of a pair depends on the join: a condition in addition to the
key, or the expressions over its result, may cost fifty times as much as the join itself. So slots report their seconds,
and the next plan of such a join uses the measured unit costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sparkext.plans.foreman import Counts, UnitCosts

COSTS = UnitCosts(received=3e-9, compared=2e-9, produced=5e-9)
"""Seconds for a row: looked up, met, and emitted."""

SECONDS_PER_BUILD_ROW = 25e-9
SECONDS_PER_ROW_OF_SEVERAL = 22e-9
"""To index a row, and to emit a probe row with more than one match: its columns have to be repeated then."""

SECONDS_PER_BYTE = 0.8e-9
SECONDS_PER_CELL = 70e-6
"""To read what comes: bytes in memory, and cells, one a line and map task or more.

Measured together: joins of 4 M rows with 1, 2, 4 and 16 matches each, of Zipf keys, of lineitem and orders with four
and with nine columns took 0.8 to 1.25 times what is planned."""

_LEAST_MEASURED = 0.1
"""Slots that have worked for fewer seconds altogether say little of what a row costs."""

_PRIOR = 0.0001
_PRIOR_RECEIVED = 0.1
"""Weights of the unit costs against the measured seconds. That of received rows is larger, since their cost hardly
depends on the join: if all slots have the same mixture of rows and pairs, pairs cost more."""

_LEAST_SCALE = 0.05


@dataclass(frozen=True)
class LineCounts:
    """What the map tasks have told of one line: rows of both sides, pairs of equal keys, bytes of both, and cells."""

    probe_rows: int
    build_rows: int
    pairs: int
    probe_bytes: int
    build_bytes: int
    cells: int

    @property
    def received(self) -> float:
        """The seconds for the rows that come, by the unit costs."""
        return self.received_by(1)

    def received_by(self, slots: int) -> float:
        """Return those of one of so many slots that share the probe rows: each has all build rows."""
        build = self.build_rows * SECONDS_PER_BUILD_ROW + self.build_bytes * SECONDS_PER_BYTE
        return self.probe_received / slots + build + self.cells * SECONDS_PER_CELL

    @property
    def probe_received(self) -> float:
        """The seconds for the rows of the probe side, but for the cells that they come in."""
        return Counts(self.probe_rows, 0, 0).load(COSTS) + self.probe_bytes * SECONDS_PER_BYTE

    @property
    def met(self) -> float:
        """The seconds for pairs, by the unit costs: what is compared, and produced."""
        several = min(self.probe_rows, max(0, self.pairs - self.probe_rows))
        return Counts(0, self.pairs, self.pairs).load(COSTS) + several * SECONDS_PER_ROW_OF_SEVERAL


class Ran(NamedTuple):
    """The work of a slot that has run, by the unit costs as `LineCounts` has it, and the seconds that it `took`."""

    received: float
    met: float
    took: float


@dataclass(frozen=True)
class Scale:
    """How many times as long as by the unit costs it takes to receive rows, and to meet pairs."""

    received: float = 1.0
    met: float = 1.0

    def load(self, counts: LineCounts) -> float:
        """Return the seconds that it takes to join a line."""
        return self.received * counts.received + self.met * counts.met

    def mostly_pairs(self, counts: LineCounts) -> bool:
        """Whether it takes longer to make a line's pairs than to receive its probe rows."""
        return self.met * counts.met > self.received * counts.probe_received

    @classmethod
    def measured(cls, slots: Iterable[Ran]) -> Scale:
        """Return the scale by which all slots took what they took, with least squares; 1 where they do not say.

        If slots have the same mixture of rows and pairs, the difference is attributed to pairs first.
        """
        ran = [*slots]
        if sum(slot.took for slot in ran) < _LEAST_MEASURED:
            return cls()
        wrong = [slot.took - slot.received - slot.met for slot in ran]
        received = sum(slot.received**2 for slot in ran)
        met = sum(slot.met**2 for slot in ran)
        both = sum(slot.received * slot.met for slot in ran)
        if received + met == 0:
            return cls()
        by_received = sum(slot.received * error for slot, error in zip(ran, wrong, strict=True))
        by_met = sum(slot.met * error for slot, error in zip(ran, wrong, strict=True))
        prior = _PRIOR * (received + met)
        received, met = received * (1 + _PRIOR_RECEIVED) + prior, met + prior
        determinant = received * met - both**2
        more_received = (by_received * met - by_met * both) / determinant
        more_met = (by_met * received - by_received * both) / determinant
        return cls(max(_LEAST_SCALE, 1 + more_received), max(_LEAST_SCALE, 1 + more_met))


BY_UNIT_COSTS = Scale()
