"""The number of units of a join matrix, and when to change it (Wang, Fang and Zhang, MFM; `docs/papers.md` 3).

A unit may hold so many rows of both sides together, its memory. One side, the main one, is cut into γ fragments; the
other has all memory that these leave. The paper tries four γ, those next to the halves of the memory; here all are
tried that can win, which takes up to 4 % fewer units.

A new cut is matched with the old one by overlap: a unit keeps what both have in common, and is sent the rest. Fragments
are ranges of lines, so rows are matched with rows and columns with columns, and a unit with that of its row and column.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from sparkext.plans.fragments import Cut

_MOST_AT_RANDOM = 3


def least_units(left: float, right: float, memory: float) -> Cut:
    """Return the cut of fewest units, of which none holds more than `memory` of sides that are so large.

    Of as many units, that which reads least of both sides altogether.
    """
    best = None
    for parts in _parts(left, memory):
        cut = Cut(parts, max(1, math.ceil(right / (memory - left / parts))))
        if best is None or _rank(cut, left, right) < _rank(best, left, right):
            best = cut
    assert best is not None
    return best


def _parts(side: float, memory: float) -> Iterator[int]:
    """Yield the numbers of fragments that may be best: more than twice as many as halves of the memory never are."""
    fewest = math.floor(side / memory) + 1
    yield from range(fewest, max(fewest, math.ceil(4 * side / memory)) + 1)


def _rank(cut: Cut, left: float, right: float) -> tuple[int, float]:
    return cut.left * cut.right, copied(cut, left, right)


def copied(cut: Cut, left: float, right: float) -> float:
    """Return what all units read of sides that are so large: each row of one goes to as many units as the other has
    fragments.
    """
    return left * cut.right + right * cut.left


def moved(old: Cut, new: Cut, left: float, right: float) -> float:
    """Return what units of a new cut are sent of sides that are so large, beside what those of the old one have."""
    rows, columns = _matched(old.left, new.left), _matched(old.right, new.right)
    kept = left * sum(rows.values()) * len(columns) + right * sum(columns.values()) * len(rows)
    return copied(new, left, right) - kept


def _matched(old: int, new: int) -> dict[int, float]:
    """Match fragments of two cuts of a side, the largest overlap first; return the share that each new one keeps."""
    overlaps = [
        (min((a + 1) / old, (b + 1) / new) - max(a / old, b / new), a, b)
        for b in range(new)
        for a in range(b * old // new, min(old, -(-(b + 1) * old // new)))
    ]
    taken: set[int] = set()
    kept: dict[int, float] = {}
    for share, a, b in sorted(overlaps, key=lambda one: (-one[0], one[1], one[2])):
        if a not in taken and b not in kept and share > 0:
            taken.add(a)
            kept[b] = share
    return kept


def next_cut(cut: Cut, left: int, right: int, slots: int, memory: int, way: str) -> Cut:
    """Return the cut to go on with, this one unless its units hold too much, or another pays.

    Parameters
    ----------
    cut
        As it is.
    left, right
        What has come of both sides so far, in bytes.
    slots
        Tasks that run at a time: so many units there are at least.
    memory
        The bytes that a unit may hold.
    way
        One of `waves.TABLES`: `hash` keeps the cut, `random` draws any.
    """
    if cut.keyed or way == "hash":
        return cut
    if way == "random":
        return Cut(random.randint(1, _MOST_AT_RANDOM), random.randint(1, _MOST_AT_RANDOM))
    if left / cut.left + right / cut.right > memory:
        least = least_units(left, right, memory)
        return least if least.left * least.right > slots else _for_slots(left, right, slots, memory)
    best = _for_slots(left, right, slots, memory)
    if cut.left * cut.right < slots:
        return best
    # What another cut saves on as many rows as have come, against what it takes to index them anew.
    saved = copied(cut, left, right) - copied(best, left, right)
    return best if saved > moved(cut, best, left, right) else cut


def _for_slots(left: int, right: int, slots: int, memory: int) -> Cut:
    """Return the cut with a unit for each slot that reads least."""
    cuts = [Cut(number, slots // number) for number in range(1, slots + 1) if slots % number == 0]
    fits = [cut for cut in cuts if left / cut.left + right / cut.right <= memory]
    return min(fits or [least_units(left, right, memory)], key=lambda cut: (copied(cut, left, right), cut.left))
