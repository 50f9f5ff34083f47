"""Compaction of the batches of a stream into runs, as in an LSM tree.

    batch     0 1 2 3 4 5 6 7 8 9 10          before batch 11, with runs of 4:
    runs     │0 · · 3│4 · · 7│8│9│10│         (0 to 3) (4 to 7) 8 9 10

A run of a level is compacted from `FAN_OUT` runs of the level below. So every row is written once per level, and every
level but the highest has fewer than `FAN_OUT` runs. The runs follow from the batch id alone: no metadata is exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

FAN_OUT = 8
LEVELS = 4
"""A run has `FAN_OUT ** LEVELS` batches at most."""


@dataclass(frozen=True, order=True)
class BatchRun:
    """The batches from `first` to `last`, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        """Name it in paths."""
        return f"{self.first}-{self.last}"

    @property
    def parts(self) -> tuple[BatchRun, ...]:
        """The runs that it was compacted from; empty if it is a single batch."""
        size = (self.last - self.first + 1) // FAN_OUT
        return (
            tuple(BatchRun(first, first + size - 1) for first in range(self.first, self.last + 1, size)) if size else ()
        )


def list_runs_before(batch: int) -> list[BatchRun]:
    """Return the runs of all batches before this one, the oldest first."""
    runs: list[BatchRun] = []
    first = 0
    for level in range(LEVELS, -1, -1):
        size = FAN_OUT**level
        while first + size <= batch:
            runs.append(BatchRun(first, first + size - 1))
            first += size
    return runs


def list_compactions_before(batch: int) -> list[BatchRun]:
    """Return the runs of several batches whose last batch is the one before this batch.

    The smallest come first: a run may be a part of the next one.
    """
    sizes = (FAN_OUT**level for level in range(1, LEVELS + 1))
    return [BatchRun(batch - size, batch - 1) for size in sizes if batch >= size and batch % size == 0]
