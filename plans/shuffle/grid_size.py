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

from sparkext.plans.shuffle.fragments import GridShape

_MOST_AT_RANDOM = 3


def minimise_units(left: float, right: float, memory: float) -> GridShape:
    """Return the grid shape with the fewest units of at most `memory` bytes each, given the bytes of both sides.

    Among shapes with equally many units, it is the shape whose units read the least of both sides altogether.
    """
    best = None
    for parts in _list_part_counts(left, memory):
        shape = GridShape(parts, max(1, math.ceil(right / (memory - left / parts))))
        if best is None or _rank(shape, left, right) < _rank(best, left, right):
            best = shape
    assert best is not None
    return best


def _list_part_counts(side: float, memory: float) -> Iterator[int]:
    """Yield the numbers of fragments that may be best. Fragments of less than a quarter of the memory never are."""
    fewest = math.floor(side / memory) + 1
    yield from range(fewest, max(fewest, math.ceil(4 * side / memory)) + 1)


def _rank(shape: GridShape, left: float, right: float) -> tuple[int, float]:
    return shape.left * shape.right, shape.read_bytes(left, right)


def minimise_perimeter(left: float, right: float, units: int, memory: float, most: GridShape) -> GridShape:
    """Return the grid shape of at most `units` units whose units read the least.

    It has more units only if the fragments of the right side would not fit `memory` otherwise.

    Parameters
    ----------
    left, right
        The bytes of both sides.
    units
        Units that can run at a time.
    memory
        The bytes that a unit may hold of the right side.
    most
        The most fragments into which each side can be divided.
    """
    fewest = min(most.right, max(1, math.ceil(right / memory)))
    shapes = [
        GridShape(min(most.left, max(1, units // columns)), columns)
        for columns in range(fewest, max(fewest, min(most.right, units)) + 1)
    ]
    return min(shapes, key=lambda shape: (shape.unit_bytes(left, right), shape.right))


def draw_shape(left: int, right: int) -> GridShape:
    """Return a random grid shape of at most these numbers of fragments."""
    return GridShape(random.randint(1, left), random.randint(1, right))


def moved(old: GridShape, new: GridShape, left: float, right: float) -> float:
    """Return the bytes that the units of a new grid shape receive.

    These are the bytes that they read, less the bytes that their matched units of the old shape hold.
    """
    rows, columns = _match_fragments(old.left, new.left), _match_fragments(old.right, new.right)
    kept_bytes = left * sum(rows.values()) * len(columns) + right * sum(columns.values()) * len(rows)
    return new.read_bytes(left, right) - kept_bytes


def _match_fragments(old: int, new: int) -> dict[int, float]:
    """Match the fragments of two grid shapes of a side, the largest overlap first.

    Return the share of the side that each new fragment keeps.
    """
    overlaps = [
        (min((a + 1) / old, (b + 1) / new) - max(a / old, b / new), a, b)
        for b in range(new)
        for a in range(b * old // new, min(old, -(-(b + 1) * old // new)))
    ]
    matched: set[int] = set()
    shares: dict[int, float] = {}
    for share, a, b in sorted(overlaps, key=lambda overlap: (-overlap[0], overlap[1], overlap[2])):
        if a not in matched and b not in shares and share > 0:
            matched.add(a)
            shares[b] = share
    return shares


def choose_next_shape(shape: GridShape, left: int, right: int, partitions: int, memory: int, policy: str) -> GridShape:
    """Return the next grid shape: the current one, unless its units hold too much or another shape pays off.

    Parameters
    ----------
    shape
        The current grid shape.
    left, right
        The bytes of both sides received so far.
    partitions
        Tasks that run at a time: the least number of units.
    memory
        The bytes that a unit may hold.
    policy
        One of `waves.TABLES`: `hash` keeps the shape, `random` draws a random one.
    """
    if shape.keyed or policy == "hash":
        return shape
    if policy == "random":
        return draw_shape(_MOST_AT_RANDOM, _MOST_AT_RANDOM)
    if shape.unit_bytes(left, right) > memory:
        least = minimise_units(left, right, memory)
        return (
            least if least.left * least.right > partitions else _choose_for_partitions(left, right, partitions, memory)
        )
    best = _choose_for_partitions(left, right, partitions, memory)
    if shape.left * shape.right < partitions:
        return best
    # Bytes that another shape saves on as many rows as were received so far; compared with the bytes to be moved.
    saved_bytes = shape.read_bytes(left, right) - best.read_bytes(left, right)
    return best if saved_bytes > moved(shape, best, left, right) else shape


def _choose_for_partitions(left: int, right: int, partitions: int, memory: int) -> GridShape:
    """Return the grid shape with `partitions` units that reads the least; if none fits the memory, `minimise_units`."""
    shapes = [
        GridShape(number, partitions // number) for number in range(1, partitions + 1) if partitions % number == 0
    ]
    fits = [shape for shape in shapes if shape.unit_bytes(left, right) <= memory]
    return min(
        fits or [minimise_units(left, right, memory)], key=lambda shape: (shape.read_bytes(left, right), shape.left)
    )
