"""How two streams are cut into the units of a join, and which rows a unit has (Wang, Fang and Zhang, MFM;
`docs/papers.md` 3).

                right 0   right 1
     left 0  │  unit 0    unit 1        unit (i, j) joins fragment i of the left side with fragment j of the right one
     left 1  │  unit 2    unit 3

Each row has a line, a number below `LINES`: by its key, where equal keys have to meet, else drawn at random. A fragment
is a range of lines, so that another cut finds its rows in what was written under this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LINES = 1 << 16
LEFT, RIGHT, MATCHED = range(3)
"""The two sides, and what is known of rows of the left one: that goes with these."""


@dataclass(frozen=True)
class Cut:
    """Into how many fragments each side is cut; `keyed`: only fragments of one number meet, in as many units."""

    left: int
    right: int
    keyed: bool = False

    @property
    def units(self) -> list[tuple[int, int]]:
        """The fragments of each unit, left and right."""
        if self.keyed:
            return [(number, number) for number in range(self.left)]
        return [(i, j) for i in range(self.left) for j in range(self.right)]

    def fragments(self, side: int) -> int:
        """Return how many fragments a side has."""
        return self.right if side == RIGHT else self.left

    def lines(self, side: int, fragment: int) -> range:
        """Return the lines of a fragment."""
        count = self.fragments(side)
        return range(-(-fragment * LINES // count), -(-(fragment + 1) * LINES // count))

    def having(self, side: int, lines: range) -> list[int]:
        """Return the fragments of a side that have any of these lines."""
        count = self.fragments(side)
        return [*range(lines.start * count // LINES, (lines.stop - 1) * count // LINES + 1)] if lines else []

    def slots(self, side: int, fragment: int, slots: int) -> list[int]:
        """Return the slots that need a fragment: those of its units, which are dealt out in turn."""
        if self.keyed:
            return [fragment % slots]
        units = (
            range(fragment * self.right, (fragment + 1) * self.right)
            if side != RIGHT
            else range(fragment, self.left * self.right, self.right)
        )
        return sorted({unit % slots for unit in units})

    def writer(self, side: int, fragment: int, slots: int) -> int:
        """Return the slot, of those, that stores what comes in of a fragment."""
        if self.keyed:
            return fragment % slots
        unit = (
            fragment * self.right + fragment % self.right
            if side != RIGHT
            else fragment % self.left * self.right + fragment
        )
        return unit % slots


@dataclass(frozen=True)
class Cuts:
    """The cuts of a stream so far: each from some batch on. The first is from batch 0 on."""

    since: tuple[tuple[int, Cut], ...]

    def at(self, batch: int) -> Cut:
        """Return the cut of a batch."""
        return next(cut for first, cut in reversed(self.since) if first <= batch)

    def followed(self, batch: int, cut: Cut) -> Cuts:
        """Return the same with another cut from this batch on."""
        return self if cut == self.at(batch) else Cuts((*self.since, (batch, cut)))

    def to_data(self) -> list[list[int]]:
        """Return plain data; `from_data` reads it back."""
        return [[first, cut.left, cut.right, int(cut.keyed)] for first, cut in self.since]

    @classmethod
    def from_data(cls, data: Sequence[Sequence[int]]) -> Cuts:
        """Read what `to_data` returned."""
        return cls(tuple((first, Cut(left, right, bool(keyed))) for first, left, right, keyed in data))


def first_cut(slots: int, keyed: bool, whole_right: bool = False) -> Cut:
    """Return the cut to begin with: as many units as slots, and two sides of which nothing is known alike.

    `whole_right`: only one unit may have a row of the left side.
    """
    if keyed:
        return Cut(slots, slots, keyed=True)
    if whole_right:
        return Cut(slots, 1)
    left = max(number for number in range(1, slots + 1) if number * number <= slots and slots % number == 0)
    return Cut(left, slots // left)
