"""Partitioning of two sides into the units of a join matrix, and the rows of each unit.

Source: Wang, Fang and Zhang, MFM (`docs/papers.md` 3).

                right 0   right 1
     left 0  │  unit 0    unit 1        unit (i, j) joins fragment i of the left side with fragment j of the right one
     left 1  │  unit 2    unit 3

Each row of a stream has a bucket, a number below `BUCKETS`: the hash of its key if equal keys have to meet, else a
random number. A fragment is a range of buckets, so rows that were written under one grid shape can be found under
another. Units are joined in partitions. For sides that are no streams, see `plans.shuffle.matrix`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BUCKETS = 1 << 16
LEFT, RIGHT, MATCHED = range(3)
"""The two sides, and the ids of matched rows of the left side, which are partitioned like that side."""


@dataclass(frozen=True)
class GridShape:
    """Grid shape: the number of fragments of each side. `keyed`: only fragments of the same index meet, in one unit."""

    left: int
    right: int
    keyed: bool = False

    @property
    def units(self) -> list[tuple[int, int]]:
        """The (left, right) fragments of each unit."""
        if self.keyed:
            return [(number, number) for number in range(self.left)]
        return [(i, j) for i in range(self.left) for j in range(self.right)]

    def unit_bytes(self, left: float, right: float) -> float:
        """Return the bytes that a unit reads, half the perimeter of its rectangle, given the bytes of both sides."""
        return left / self.left + right / self.right

    def read_bytes(self, left: float, right: float) -> float:
        """Return the bytes that all units read: each row goes to as many units as the other side has fragments."""
        return left * self.right + right * self.left

    def fragments(self, side: int) -> int:
        """Return the number of fragments of a side."""
        return self.right if side == RIGHT else self.left

    def buckets(self, side: int, fragment: int) -> range:
        """Return the buckets of a fragment."""
        count = self.fragments(side)
        return range(-(-fragment * BUCKETS // count), -(-(fragment + 1) * BUCKETS // count))

    def having(self, side: int, buckets: range) -> list[int]:
        """Return the fragments of a side that have any of these buckets."""
        count = self.fragments(side)
        return [*range(buckets.start * count // BUCKETS, (buckets.stop - 1) * count // BUCKETS + 1)] if buckets else []

    def partitions(self, side: int, fragment: int, partitions: int) -> list[int]:
        """Return the partitions of a fragment's units. Units are assigned to partitions in turn."""
        if self.keyed:
            return [fragment % partitions]
        units = (
            range(fragment * self.right, (fragment + 1) * self.right)
            if side != RIGHT
            else range(fragment, self.left * self.right, self.right)
        )
        return sorted({unit % partitions for unit in units})

    def writer(self, side: int, fragment: int, partitions: int) -> int:
        """Return the partition, one of `partitions()`, that stores the incoming rows of a fragment."""
        if self.keyed:
            return fragment % partitions
        unit = (
            fragment * self.right + fragment % self.right
            if side != RIGHT
            else fragment % self.left * self.right + fragment
        )
        return unit % partitions


@dataclass(frozen=True)
class GridShapes:
    """The grid shapes of a stream so far, each with the batch that it begins with. The first begins with batch 0."""

    since: tuple[tuple[int, GridShape], ...]

    def at(self, batch: int) -> GridShape:
        """Return the grid shape of a batch."""
        return next(shape for first, shape in reversed(self.since) if first <= batch)

    def derive_next(self, batch: int, shape: GridShape) -> GridShapes:
        """Return these grid shapes, with `shape` from this batch on."""
        return self if shape == self.at(batch) else GridShapes((*self.since, (batch, shape)))

    def to_data(self) -> list[list[int]]:
        """Return plain data; `from_data` reads it back."""
        return [[first, shape.left, shape.right, int(shape.keyed)] for first, shape in self.since]

    @classmethod
    def from_data(cls, data: Sequence[Sequence[int]]) -> GridShapes:
        """Read the result of `to_data`."""
        return cls(tuple((first, GridShape(left, right, bool(keyed))) for first, left, right, keyed in data))


def choose_first_shape(partitions: int, keyed: bool, whole_right: bool = False) -> GridShape:
    """Return the initial grid shape: one unit per partition, and equally many fragments of both sides if possible.

    Nothing is known of the sides yet. `whole_right`: the right side is replicated, so each left row is in one unit.
    """
    if keyed:
        return GridShape(partitions, partitions, keyed=True)
    if whole_right:
        return GridShape(partitions, 1)
    left = max(
        number for number in range(1, partitions + 1) if number * number <= partitions and partitions % number == 0
    )
    return GridShape(left, partitions // left)
