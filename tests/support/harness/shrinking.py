"""Shrinks a failing case by removing parts, as long as it still fails.

Hypothesis shrinks the random draws, so that most of its tries would be entirely different cases, and each try costs
queries in Spark. This module removes independent parts instead, which needs dozens of tries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

PATIENCE_SECONDS = 120.0

Case = TypeVar("Case")
Parts = TypeVar("Parts", tuple[Any, ...], list[Any])


def shrink(
    case: Case,
    reductions: Iterable[Callable[[Case], Iterator[Case]]],
    is_wrong: Callable[[Case], bool],
    patience: float = PATIENCE_SECONDS,
) -> Case:
    """Return the smallest failing case found within the time limit.

    Each reduction yields smaller cases, and is repeated from the first of them that fails.
    """
    until = time.monotonic() + patience
    for smaller in reductions:
        progress = True
        while progress:
            progress = False
            for candidate in smaller(case):
                if time.monotonic() > until:
                    return case
                if is_wrong(candidate):
                    case, progress = candidate, True
                    break
    return case


def omit_parts(values: Parts, smallest: int = 1) -> Iterator[Parts]:
    """Yield a tuple or list without halves, quarters, and so on, down to parts of `smallest` members."""
    length = len(values)
    size = (length + 1) // 2
    while size >= smallest:
        for start in range(0, length, size):
            yield values[:start] + values[start + size :]
        size //= 2
