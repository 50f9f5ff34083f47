"""Allocation of records in an arena.

arena[0] is the address of the first word that was never used. The words after it are the heads of lists of free records
by size. Each size of up to 64 words has its own list; larger sizes are rounded up to a power of two.
"""

from __future__ import annotations

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.runtime.jit import inlined

_SMALL = 64
FIRST_FREE = 112
"""The first word after the lists: headers begin here."""


class ArenaFullError(MemoryError):
    """The arena has no space for another record."""


@inlined
def _find_free_list(words: int) -> int:
    if words <= _SMALL:
        return words
    power = 7
    while (1 << power) < words:
        power += 1
    return _SMALL + power - 6


@inlined
def allocate(arena: Int64Array, words: int) -> int:
    """Return the address of an uninitialised record of `words` words. Raises `ArenaFullError`."""
    place = _find_free_list(words)
    free = arena[place]
    if free != 0:
        arena[place] = arena[free]
        return free
    size = words if words <= _SMALL else 1 << (place - _SMALL + 6)
    at = arena[0]
    if at + size > arena.size:
        raise ArenaFullError("an arena is full")
    arena[0] = at + size
    return at


@inlined
def release(arena: Int64Array, at: int, words: int) -> None:
    """Release a record of `words` words."""
    place = _find_free_list(words)
    arena[at] = arena[place]
    arena[place] = at


@inlined
def allocate_zeros(arena: Int64Array, words: int) -> int:
    """Return the address of a record of zeros."""
    at = allocate(arena, words)
    for place in range(at, at + words):
        arena[place] = 0
    return at
