"""Allocates words of an arena: arena[0] is the first that was never used; behind it are lists of free records by size.

Sizes of up to 64 words have a list each, larger ones that of the next power of two.
"""

from __future__ import annotations

from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.jit import inlined

_SMALL = 64
FIRST_FREE = 112
"""The first word behind the lists: headers begin here."""


class ArenaFullError(MemoryError):
    """There is no room for one more record."""


@inlined
def _list_of(words: int) -> int:
    if words <= _SMALL:
        return words
    power = 7
    while (1 << power) < words:
        power += 1
    return _SMALL + power - 6


@inlined
def allocate(arena: Int64Array, words: int) -> int:
    """Return the address of a record of so many words, which hold anything. Raises `ArenaFullError`."""
    place = _list_of(words)
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
    """Give a record of so many words back."""
    place = _list_of(words)
    arena[at] = arena[place]
    arena[place] = at


@inlined
def cleared(arena: Int64Array, words: int) -> int:
    """Return the address of a record of zeros."""
    at = allocate(arena, words)
    for place in range(at, at + words):
        arena[place] = 0
    return at
