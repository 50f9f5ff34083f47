"""Threads for work on arrays: kernels release Python's global lock."""

from __future__ import annotations

import os
import resource
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from threading import Barrier
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_WORTH_SHARING = 1 << 16
_ROOM_OF_A_THREAD = 256 << 20


def pool(threads: int) -> Executor:
    """Return a pool of threads, or only the calling thread if a limit of the address space (RLIMIT_AS) is too low.

    Python waits forever for a thread that finds no memory when it starts. Under a limit, all threads of a pool are
    therefore started immediately, not when work arrives, and only if much more address space is left than they need.
    """
    room = _measure_address_space()
    if room is None:
        return ThreadPoolExecutor(threads)
    if room < threads * _ROOM_OF_A_THREAD:
        return _CallerExecutor()
    executor = ThreadPoolExecutor(threads)
    begun = Barrier(threads + 1)
    for _ in range(threads):
        executor.submit(begun.wait)
    begun.wait()
    return executor


def may_begin(threads: int) -> int:
    """Return how many of these threads may start: all, or 1, the calling thread (see `pool`)."""
    room = _measure_address_space()
    return threads if room is None or room >= threads * _ROOM_OF_A_THREAD else 1


class _CallerExecutor(Executor):
    """Runs submitted work at once, in the calling thread, and mapped work when its result is requested."""

    def submit(self, function: Callable[..., R], /, *arguments: Any, **named: Any) -> Future[R]:
        done: Future[R] = Future()
        try:
            done.set_result(function(*arguments, **named))
        except BaseException as error:
            done.set_exception(error)
        return done

    def map(self, fn: Callable[..., R], *iterables: Iterable[Any], **_: Any) -> Iterator[R]:
        return map(fn, *iterables)


def _measure_address_space() -> int | None:
    """Return how many bytes of address space are left: None without a limit, 0 if unknown."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
    return max(0, limit - pages * os.sysconf("SC_PAGE_SIZE"))


def run_each(work: Callable[..., object], *items: Iterable[Any], threads: int) -> None:
    """Call `work` with the zipped items, in threads. After an error no further call starts, and the error is raised."""
    with pool(threads) as executor:
        try:
            for _ in executor.map(work, *items):
                pass  # an error of any call is raised here
        except BaseException:
            executor.shutdown(wait=True, cancel_futures=True)
            raise


def run_in_parts(work: Callable[[int, int], object], size: int, threads: int) -> None:
    """Call `work(start, stop)` for consecutive parts of [0, size), each in its own thread if `size` is worth it."""
    run_in_threads(
        work, [size * part // threads for part in range(threads + 1)] if size >= _WORTH_SHARING else [0, size]
    )


def run_in_threads(work: Callable[[int, int], object], ends: list[int]) -> None:
    """Call `work(start, stop)` for each pair of neighbouring ends that differ, each in a thread of its own."""
    parts = [(start, stop) for start, stop in pairwise(ends) if stop > start]
    if len(parts) < 2:
        for start, stop in parts:
            work(start, stop)
        return
    with pool(len(parts)) as executor:
        list(executor.map(lambda part: work(*part), parts))


def map_ahead(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield `function(item)` for each item in order; `threads` threads compute at most this many items ahead."""
    with pool(threads) as executor:
        pending: deque[Future[R]] = deque()
        try:
            for item in items:
                pending.append(executor.submit(function, item))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
