"""The delivery modes that paper 4 (Kawashima & Tatebe) compares with the engine's own, for its pipeline.

Each is composed from settings (rows of an output), resources (memory that is not measured) and a delivery (the order
of calls, see `sparkext.engine.delivery`):

    depth first       an item that a stage yields goes all the way down before the next request: one item per stage
                      exists at any time (tuple, block, morsel and adaptive, which differ in the size of items)
    set at a time     a stage gets all items and yields all its output, then the next stage begins (materialisation)
    independent       each thread works on an item of its own, through all stages

Source: Kawashima & Tatebe, "Data delivery between operators in parallel databases", table and conclusion 2.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from sparkext.config import Settings
from sparkext.engine.delivery import Delivery, Stage, deliver_depth_first
from sparkext.engine.operator_budget import ARRAY_BYTES
from sparkext.engine.pipeline import Resources

T = TypeVar("T")

MORSEL_ROWS = 200_000
_QUEUED_PER_THREAD = 2


def with_fixed_outputs(rows: int, settings: Settings, resources: Resources) -> tuple[Settings, Resources]:
    """Let every output have `rows` rows, however much memory is free; only the size of an Arrow array limits it."""
    fixed = replace(settings, morsel_min_rows=rows, morsel_max_rows=rows, morsel_max_bytes=ARRAY_BYTES)
    return fixed, replace(resources, headroom=lambda: None)


@dataclass(frozen=True)
class Mode:
    """One delivery mode.

    `rows`: rows of an output; None if the output-size controller decides. `by_sets`: whether it delivers a set at a
    time. `parallel`: whether it uses all cores that a task owns.
    """

    rows: int | None
    by_sets: bool = False
    parallel: bool = True

    def apply(self, settings: Settings, resources: Resources, independent: bool = False) -> tuple[Settings, Resources]:
        """Return the settings and resources of a pipeline in this mode. `independent`: how its threads work."""
        if self.rows is not None:
            settings, resources = with_fixed_outputs(self.rows, settings, resources)
        if self.by_sets:
            resources = replace(resources, delivery=by_sets)
        elif independent:
            resources = replace(resources, delivery=independently)
        return settings, resources if self.parallel else replace(resources, cores=1)


MODES = {
    "adaptive": Mode(None),
    "morsel": Mode(MORSEL_ROWS),
    "block": Mode(1_024),
    "tuple": Mode(1, parallel=False),
    "materialize": Mode(MORSEL_ROWS, by_sets=True, parallel=False),
    "materialize_parallel": Mode(MORSEL_ROWS, by_sets=True),
}
"""The modes by name: HyPer's morsels, MonetDB/X100's blocks, Volcano's tuples, set materialisation.

The size of the pieces of a set does not matter: all of them are held until the next stage begins.
"""


@contextmanager
def independently(threads: int) -> Iterator[Delivery]:
    """Yield the delivery in which each thread takes items and processes them through all stages."""
    yield deliver_depth_first if threads == 1 else partial(deliver_independently, threads=threads)


@contextmanager
def by_sets(threads: int) -> Iterator[Delivery]:
    """Yield the delivery in which every stage processes all items before the next one begins."""
    with ThreadPoolExecutor(threads) as pool:
        yield partial(deliver_sets, pool=pool if threads > 1 else None)


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
