"""Delivery of rows along a chain of operators: each mode of Kawashima & Tatebe's table is an order of calls.

An operator is a *stage*: given an item (rows) to process, it yields one item per request, of a size that it decides
itself. The modes (`Way` in the code) differ in the order of these requests:

    depth first       an item that a stage yields goes all the way down before the next request: one item per stage
                      exists at any time (tuple, block, morsel and adaptive, which differ in the size of items)
    set at a time     a stage gets all items and yields all its output, then the next stage begins (materialisation)

If a task owns several cores, the modes also differ in the work of its threads:

    cooperative       all threads work on parts of the same item, at the same stage; each yields one item at a time, and
                      all of these go down before the next request to any thread
    independent       each thread works on an item of its own, through all stages

In every mode, a stage finishes after all of its input has been processed. The items that it yields then go through the
stages after it, before these finish (`deliver_all`).

Source: Kawashima & Tatebe, "Data delivery between operators in parallel databases", table and conclusion 2.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Stage(Protocol):
    """An operator, reduced to the methods that delivery calls."""

    def process(self, item: Any) -> Iterator[Any]:
        """Yield the output of an item."""
        ...

    def finish(self) -> Iterator[Any]:
        """Yield the output that depends on the input as a whole. Called after all of it has been processed."""
        ...


Way = Callable[[Sequence[Stage], Iterable[Any]], Iterator[Any]]
Divide = Callable[[Any, int], Sequence[Any]]

_QUEUED_PER_THREAD = 2


@dataclass(frozen=True)
class Delivery:
    """One delivery mode.

    `rows`: rows of an output; None if the output-size controller decides. `by_sets`: whether it delivers a set
    at a time. `parallel`: whether it uses all cores that a task owns.
    """

    rows: int | None
    by_sets: bool = False
    parallel: bool = True


MORSEL_ROWS = 200_000

DELIVERIES = {
    "adaptive": Delivery(None),
    "morsel": Delivery(MORSEL_ROWS),
    "block": Delivery(1_024),
    "tuple": Delivery(1, parallel=False),
    "materialize": Delivery(MORSEL_ROWS, by_sets=True, parallel=False),
    "materialize_parallel": Delivery(MORSEL_ROWS, by_sets=True),
}
"""The modes by name: HyPer's morsels, MonetDB/X100's blocks, Volcano's tuples, set materialisation.

The size of the pieces of a set does not matter: all of them are held until the next stage begins.
"""


def deliver_all(way: Way, stages: Sequence[Stage], items: Iterable[Any]) -> Iterator[Any]:
    """Yield the stages' output for `items`, then finish the stages in order, and yield the later stages' output."""
    yield from way(stages, items)
    for number, stage in enumerate(stages, 1):
        last = stage.finish()
        for item in last:  # most stages yield nothing here, and `way` is not called
            yield from way(stages[number:], chain([item], last))


def deliver_depth_first(stages: Sequence[Stage], items: Iterable[Any]) -> Iterator[Any]:
    """Yield the output of the last stage, with one item in progress at every stage."""
    if not stages:
        yield from items
        return
    for item in items:
        yield from deliver_depth_first(stages[1:], stages[0].process(item))


def deliver_cooperatively(
    stages: Sequence[Stage], items: Iterable[Any], divide: Divide, pool: Executor, threads: int
) -> Iterator[Any]:
    """Like `deliver_depth_first`, with each item divided among threads. Each thread yields one item per round."""
    if not stages:
        yield from items
        return
    for item in items:
        active = [stages[0].process(part) for part in divide(item, threads)]
        while active:
            given = list(pool.map(_take_next, active))
            yield from deliver_cooperatively(stages[1:], (one for some in given for one in some), divide, pool, threads)
            active = [outputs for outputs, some in zip(active, given, strict=True) if some]


def deliver_independently(stages: Sequence[Stage], items: Iterable[Any], threads: int) -> Iterator[Any]:
    """Let each thread take items and process them through all stages; yield the outputs in any order."""
    shared = _SharedIterator(items)
    return _merge_streams([deliver_depth_first(stages, shared) for _ in range(threads)])


def deliver_sets(stages: Sequence[Stage], items: Iterable[Any], pool: Executor | None) -> Iterator[Any]:
    """Let every stage process all items before the next one begins; with a pool, several items at once."""
    held: list[Any] = list(items)
    for stage in stages:
        outputs = pool.map(_collect_from(stage), held) if pool is not None else map(_collect_from(stage), held)
        held = [item for output in outputs for item in output]
    yield from held


def _take_next(outputs: Iterator[T]) -> list[T]:
    """Return the next output of a stage, if there is one."""
    for item in outputs:
        return [item]
    return []


def _collect_from(stage: Stage) -> Callable[[Any], list[Any]]:
    return lambda item: list(stage.process(item))


class _SharedIterator(Generic[T]):
    """An iterator that several threads share."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            return next(self._items)


class _ConsumerStopped(Exception):
    """The consumer has stopped reading."""


def _merge_streams(streams: Sequence[Iterator[T]]) -> Iterator[T]:
    """Run every stream in a thread of its own, and yield their items through a short queue."""
    output: queue.Queue[Any] = queue.Queue(_QUEUED_PER_THREAD * len(streams))
    left = threading.Event()

    def put(item: object) -> None:
        while True:
            if left.is_set():
                raise _ConsumerStopped
            try:
                return output.put(item, timeout=0.05)
            except queue.Full:
                continue

    def drain(stream: Iterator[T]) -> None:
        try:
            for item in stream:
                put((item, None))
            put((None, None))
        except _ConsumerStopped:
            pass
        except BaseException as error:
            with suppress(_ConsumerStopped):
                put((None, error))

    threads = [threading.Thread(target=drain, args=(stream,), daemon=True) for stream in streams]
    for thread in threads:
        thread.start()
    running = len(streams)
    try:
        while running:
            item, error = output.get()
            if error is not None:
                raise error
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        left.set()
        for thread in threads:
            thread.join()
