"""Lines of generated code that more than one step of a row's way has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkext.cql.layout import Literal

SHARED = "m, c, s, d"
"""What all functions take: the arena, constants, and texts."""


def fires(queue: Literal, time: str, epsilons: str) -> list[str]:
    """Return how the next instant may be that at which the first record `f` of a queue has something to do."""
    earlier = [f"    ft, fe = {time}, {epsilons}", "    if ft < t or (ft == t and fe < e):", "        t, e = ft, fe"]
    return [f"f = m[{queue}]", "if f != 0:", *earlier]


def first_ones(queue: Literal, stays: str, lines: Sequence[str]) -> list[str]:
    """Return what happens to the first records of a queue, `f` and then `r`, until one of them stays."""
    taken = [f"f = m[{queue}]", f"if f == 0 or {stays}:", "    break", f"r = pop(m, {queue})", *lines]
    return ["while True:", *indented(1, taken)]


def all_of(queue: Literal, lines: Sequence[str]) -> list[str]:
    """Return what happens to all records of a queue, `r`."""
    return [f"while m[{queue}] != 0:", *indented(1, [f"r = pop(m, {queue})", *lines])]


def indented(depth: int, lines: Iterable[str]) -> list[str]:
    """Return lines of a block that is so deep."""
    return ["    " * depth + line for line in lines]
