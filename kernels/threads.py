"""Work on arrays that several threads share: kernels hold no lock of Python's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_WORTH_SHARING = 1 << 16


def in_parts(work: Callable[[int, int], object], size: int, threads: int) -> None:
    """Call `work(start, stop)` for consecutive parts of [0, size), each in a thread of its own if that pays."""
    in_threads(work, [size * part // threads for part in range(threads + 1)] if size >= _WORTH_SHARING else [0, size])


def in_threads(work: Callable[[int, int], object], ends: list[int]) -> None:
    """Call `work(start, stop)` for each pair of neighbouring ends that differ, each in a thread of its own."""
    parts = [(start, stop) for start, stop in pairwise(ends) if stop > start]
    if len(parts) < 2:
        for start, stop in parts:
            work(start, stop)
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(lambda part: work(*part), parts))


def ahead(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield `function(item)` for each item in turn, at most `threads` of them computed ahead, by as many threads."""
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[R]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
