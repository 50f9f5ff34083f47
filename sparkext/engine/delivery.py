"""Delivery of rows along a chain of operators: the order in which the operators are called.

An operator is a *stage*: given an item (rows) to process, it yields one item per request, of a size that it decides
itself. An item that a stage yields goes all the way down before the next request, so one item per stage exists at any
time. If a task owns several cores, its threads cooperate: all of them work on parts of the same item, at the same
stage. Each yields one item at a time, and all of these go down before the next request to any thread.

A stage finishes after all of its input has been processed. The items that it yields then go through the stages after
it, before these finish (`deliver_all`).

Source: Kawashima & Tatebe, "Data delivery between operators in parallel databases", conclusion 2. The other modes of
the paper's table are in `bench/engines/deliveries.py`, which compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from sparkext.engine.nodes import Operator, Sink
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.kernels.runtime.threads import pool
from sparkext.rows.row_set import RowSet

T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """An operator or the sink of a pipeline, with its budget."""

    node: Operator | Sink
    budget: OperatorBudget

    def process(self, rows: RowSet) -> Iterator[Any]:
        """Yield the output for these rows."""
        return self.node.process(rows, self.budget)

    def finish(self) -> Iterator[Any]:
        """Yield the output that depends on the input as a whole. Called after all of it has been processed."""
        return self.node.finish(self.budget)


Delivery = Callable[[Sequence[Stage], Iterable[Any]], Iterator[Any]]
"""Yields the last stage's output for some items."""

Deliverer = Callable[[int], AbstractContextManager[Delivery]]
"""Begins a delivery with a number of threads."""

_LEAST_PART_ROWS = 4_096  # a thread processes fewer rows in less time than its dispatch costs


@contextmanager
def with_threads(threads: int) -> Iterator[Delivery]:
    """Yield the delivery of a task that owns this number of cores."""
    if threads == 1:
        yield deliver_depth_first
        return
    with pool(threads) as executor:
        yield partial(deliver_cooperatively, divide=_divide_rows, pool=executor, threads=threads)


def deliver_all(delivery: Delivery, stages: Sequence[Stage], items: Iterable[Any]) -> Iterator[Any]:
    """Yield the stages' output for `items`, then finish the stages in order, and yield the later stages' output."""
    yield from delivery(stages, items)
    for number, stage in enumerate(stages, 1):
        last = stage.finish()
        for item in last:  # most stages yield nothing here, and `delivery` is not called
            yield from delivery(stages[number:], chain([item], last))


def deliver_depth_first(stages: Sequence[Stage], items: Iterable[Any]) -> Iterator[Any]:
    """Yield the output of the last stage, with one item in progress at every stage."""
    if not stages:
        yield from items
        return
    for item in items:
        yield from deliver_depth_first(stages[1:], stages[0].process(item))


def deliver_cooperatively(
    stages: Sequence[Stage],
    items: Iterable[Any],
    divide: Callable[[Any, int], Sequence[Any]],
    pool: Executor,
    threads: int,
) -> Iterator[Any]:
    """Like `deliver_depth_first`, with each item divided among threads. Each thread yields one item per round."""
    if not stages:
        yield from items
        return
    for item in items:
        active = [stages[0].process(part) for part in divide(item, threads)]
        while active:
            round_outputs = list(pool.map(_take_next, active))
            yield from deliver_cooperatively(
                stages[1:], (output for next_output in round_outputs for output in next_output), divide, pool, threads
            )
            active = [outputs for outputs, next_output in zip(active, round_outputs, strict=True) if next_output]


def _take_next(outputs: Iterator[T]) -> list[T]:
    """Return the next output of a stage, if there is one."""
    for item in outputs:
        return [item]
    return []


def _divide_rows(rows: RowSet, threads: int) -> list[RowSet]:
    """Split rows into at most `threads` parts of at least `_LEAST_PART_ROWS` rows each."""
    return rows.parts(max(1, min(threads, rows.length // _LEAST_PART_ROWS)))
