"""The frame that every task runs in, and what a task may know of itself."""

from __future__ import annotations

import gc
import math
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from sparkext._version import __version__
from sparkext.config import Settings
from sparkext.errors import EnvironmentProblemError
from sparkext.memory import address_space, freed
from sparkext.memory.probes import Tasks, process_probe
from sparkext.memory.register import task_entered
from sparkext.parquet.file_stores import one_run
from sparkext.reports.metrics import NO_TASK, TaskId
from sparkext.rows.compression import decompressed


class MemoryShare(NamedTuple):
    """The settings of a task, and how many tasks share an executor's memory.

    `tasks_sharing` counts where running tasks cannot be counted; None for the cores that this process may use.
    """

    settings: Settings
    tasks_sharing: int | None


@dataclass(frozen=True)
class WorkerTask(ABC):
    """A function for `mapInArrow`: Spark calls it once per partition with an iterator of record batches.

    Every task runs in one frame: it refuses the order of another version, and an address space in which kernels do not
    fit. While it runs it counts among the tasks that share the memory, and it returns freed memory when it ends, also
    if it fails. `made_by`: the version of sparkext on the driver.
    """

    made_by: str = field(default=__version__, kw_only=True)

    @property
    @abstractmethod
    def share(self) -> MemoryShare:
        """The share of memory that the task plans within."""

    @abstractmethod
    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Process one partition, among so many tasks that share the memory."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run in the frame.

        Raises
        ------
        EnvironmentProblemError
            The versions of driver and worker differ, or the address space is too small.
        """
        check_version(self.made_by)
        address_space.check_room()
        _settle()
        with _entered(*self.share) as tasks:
            try:
                yield from self.run(decompressed(batches), tasks)
            finally:
                freed.release_unless_ample()


@dataclass(frozen=True)
class ConfiguredTask(WorkerTask):
    """A task with settings of its own. `settings` and `tasks_sharing` are as in `MemoryShare`."""

    settings: Settings = field(kw_only=True)
    tasks_sharing: int | None = field(kw_only=True)

    @property
    def share(self) -> MemoryShare:
        """Its own share."""
        return MemoryShare(self.settings, self.tasks_sharing)


def check_version(made_by: str) -> None:
    """Refuse what another version of sparkext has made, on the driver or in its jar: it may mean something else.

    Raises
    ------
    EnvironmentProblemError
        Names both versions.
    """
    if made_by != __version__:
        raise EnvironmentProblemError(
            f"the driver, or the jar that it has loaded, is of sparkext {made_by}, this worker ({sys.executable}) has"
            f" {__version__}: install one version on the driver and on all nodes, and load the jar that"
            " `python -m sparkext jar` prints there"
        )


class _Collections:
    """How long the last full collection of garbage took, as Spark has one made after every task."""

    def __init__(self) -> None:
        self.seconds = math.inf
        self._started = 0.0
        gc.callbacks.append(self._observe)

    def _observe(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._started = time.perf_counter()
        elif info["generation"] == _FULL:
            self.seconds = time.perf_counter() - self._started


_FULL = 2
_SLOW_SECONDS = 0.005

_collections = lru_cache(maxsize=1)(_Collections)


def _settle() -> None:
    """Take what this process has loaded for what it is, no garbage: Spark has it all looked at after every task.

    With numba and a few kernels loaded that takes 60 to 180 ms, half of what short tasks cost. The extension's daemon
    has done the same before it forked, but tasks load more; so it is done again before a task if the collection after
    the last one was slow. What is alive between two tasks is modules, kernels and caches, which are freed as ever
    unless they are in cycles. And no address space is reserved from then on, where it is short.
    """
    collections = _collections()
    if collections.seconds > _SLOW_SECONDS:
        gc.freeze()
        collections.seconds = 0.0
        address_space.spare()


@contextmanager
def _entered(settings: Settings, tasks_sharing: int | None) -> Iterator[Tasks]:
    """Count this task among those that share the memory, plan within what is set for it, and ask for remote files only
    what its run has not; yield the count.
    """
    otherwise = tasks_sharing or len(os.sched_getaffinity(0))
    with process_probe().limited(settings.memory_max_bytes), task_entered(otherwise) as tasks, one_run(_run()):
        yield tasks


def _run() -> str | None:
    """Return which run of a query this task belongs to, if that can be told."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("spark.sql.execution.id")


def owned_cores() -> int:
    """Return how many cores this task owns."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else max(1, context.cpus())


def task_id() -> TaskId:
    """Return which task attempt this is."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return NO_TASK
    return TaskId(context.stageId(), context.partitionId(), context.attemptNumber())
