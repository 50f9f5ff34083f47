"""Lines of generated code that several processing steps share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkext.streaming.cql.code.layout import Int64Literal

SHARED = "m, c, s, d"
"""Parameters of all functions: the arena, constants, and the offsets and bytes of texts."""


def write_due_check(queue: Int64Literal, time: str, epsilons: str) -> list[str]:
    """Return the lines that move the next instant, `t` and `e`, back to the due time of a queue's first record, `f`."""
    earlier = [f"    ft, fe = {time}, {epsilons}", "    if ft < t or (ft == t and fe < e):", "        t, e = ft, fe"]
    return [f"f = m[{queue}]", "if f != 0:", *earlier]


def write_pop_loop(queue: Int64Literal, stays: str, lines: Sequence[str]) -> list[str]:
    """Return the loop that pops records of a queue as `r`, up to the first record `f` for which `stays` is true."""
    body = [f"f = m[{queue}]", f"if f == 0 or {stays}:", "    break", f"r = pop(m, {queue})", *lines]
    return ["while True:", *indent_lines(1, body)]


def write_drain_loop(queue: Int64Literal, lines: Sequence[str]) -> list[str]:
    """Return the loop that pops all records of a queue, as `r`."""
    return [f"while m[{queue}] != 0:", *indent_lines(1, [f"r = pop(m, {queue})", *lines])]


def indent_lines(depth: int, lines: Iterable[str]) -> list[str]:
    """Return lines indented by `depth` levels."""
    return ["    " * depth + line for line in lines]
