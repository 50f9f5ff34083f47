"""The number of units of a join matrix, and when to change it (Wang, Fang and Zhang, MFM; `docs/papers.md` 3).

A unit has a limited memory for rows of both sides together. One side, the main one, is partitioned into γ fragments;
the rest of a unit's memory is for the other side. The paper tries four values of γ: the size of either side divided by
half of the memory, rounded down and up. Here all values are tried that can be best, which needs up to 4 % fewer units.

A new grid shape is matched with the old one by overlap: a unit keeps the rows that both have in common, and receives
the rest. Fragments are ranges of buckets, so rows of the matrix are matched with rows and columns with columns, and a
unit is matched with the unit of its row and column.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from sparkext.plans.streams.fragments import GridShape

_MOST_AT_RANDOM = 3


def minimise_units(left: float, right: float, memory: float) -> GridShape:
    """Return the grid shape with the fewest units of at most `memory` bytes each, given the bytes of both sides.

    Among shapes with equally many units, it is the shape whose units read the least of both sides altogether.
    """
    best = None
    for parts in _list_part_counts(left, memory):
        cut = GridShape(parts, max(1, math.ceil(right / (memory - left / parts))))
        if best is None or _rank(cut, left, right) < _rank(best, left, right):
            best = cut
    assert best is not None
    return best


def _list_part_counts(side: float, memory: float) -> Iterator[int]:
    """Yield the numbers of fragments that may be best. Fragments of less than a quarter of the memory never are."""
    fewest = math.floor(side / memory) + 1
    yield from range(fewest, max(fewest, math.ceil(4 * side / memory)) + 1)


def _rank(cut: GridShape, left: float, right: float) -> tuple[int, float]:
    return cut.left * cut.right, count_read_bytes(cut, left, right)


def count_read_bytes(cut: GridShape, left: float, right: float) -> float:
    """Return the bytes that all units read together, given the bytes of both sides.

    Each row goes to as many units as the other side has fragments.
    """
    return left * cut.right + right * cut.left


def moved(old: GridShape, new: GridShape, left: float, right: float) -> float:
    """Return the bytes that the units of a new grid shape receive.

    These are the bytes that they read, less the bytes that their matched units of the old shape hold.
    """
    rows, columns = _match_fragments(old.left, new.left), _match_fragments(old.right, new.right)
    kept = left * sum(rows.values()) * len(columns) + right * sum(columns.values()) * len(rows)
    return count_read_bytes(new, left, right) - kept


def _match_fragments(old: int, new: int) -> dict[int, float]:
    """Match the fragments of two grid shapes of a side, the largest overlap first.

    Return the share of the side that each new fragment keeps.
    """
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


def choose_next_shape(cut: GridShape, left: int, right: int, partitions: int, memory: int, way: str) -> GridShape:
    """Return the next grid shape: the current one, unless its units hold too much or another shape pays off.

    Parameters
    ----------
    cut
        The current grid shape.
    left, right
        The bytes of both sides received so far.
    partitions
        Tasks that run at a time: the least number of units.
    memory
        The bytes that a unit may hold.
    way
        The policy, one of `waves.TABLES`: `hash` keeps the shape, `random` draws a random one.
    """
    if cut.keyed or way == "hash":
        return cut
    if way == "random":
        return GridShape(random.randint(1, _MOST_AT_RANDOM), random.randint(1, _MOST_AT_RANDOM))
    if left / cut.left + right / cut.right > memory:
        least = minimise_units(left, right, memory)
        return (
            least if least.left * least.right > partitions else _choose_for_partitions(left, right, partitions, memory)
        )
    best = _choose_for_partitions(left, right, partitions, memory)
    if cut.left * cut.right < partitions:
        return best
    # Bytes that another shape saves on as many rows as were received so far; compared with the bytes to be moved.
    saved = count_read_bytes(cut, left, right) - count_read_bytes(best, left, right)
    return best if saved > moved(cut, best, left, right) else cut


def _choose_for_partitions(left: int, right: int, partitions: int, memory: int) -> GridShape:
    """Return the grid shape with `partitions` units that reads the least; if none fits the memory, `minimise_units`."""
    cuts = [GridShape(number, partitions // number) for number in range(1, partitions + 1) if partitions % number == 0]
    fits = [cut for cut in cuts if left / cut.left + right / cut.right <= memory]
    return min(
        fits or [minimise_units(left, right, memory)], key=lambda cut: (count_read_bytes(cut, left, right), cut.left)
    )
