"""The common base class of all worker tasks, and functions that identify the running task."""

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
from sparkext.parquet.file_stores import cache_identities
from sparkext.reports.metrics import NO_TASK, TaskId
from sparkext.rows.compression import read_compressed


class MemoryShare(NamedTuple):
    """The settings of a task, and the number of tasks that share an executor's memory.

    `tasks_sharing` is used if the running tasks cannot be counted. If it is None, the number of cores that this process
    may use is assumed.
    """

    settings: Settings
    tasks_sharing: int | None


@dataclass(frozen=True)
class WorkerTask(ABC):
    """A function for `mapInArrow`: Spark calls it once per partition with an iterator of record batches.

    Each call checks that the driver has the same version of sparkext and that the kernels fit into the address space.
    While the task runs, it counts as one of the tasks that share the memory. When it ends or fails, it releases freed
    memory. `made_by`: the version of sparkext on the driver.
    """

    made_by: str = field(default=__version__, kw_only=True)

    @property
    @abstractmethod
    def share(self) -> MemoryShare:
        """The settings and memory share that the task plans with."""

    @abstractmethod
    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Process one partition; `tasks` counts the tasks that share the memory."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Check the environment, then run the task.

        Raises
        ------
        EnvironmentProblemError
            The versions of driver and worker differ, or the address space is too small.
        """
        check_version(self.made_by)
        address_space.check_process_limit()
        _freeze_modules()
        with _register_task(*self.share) as tasks:
            try:
                yield from self.run(read_compressed(batches), tasks)
            finally:
                freed.release_unless_ample()


@dataclass(frozen=True)
class ConfiguredTask(WorkerTask):
    """A task with its own settings. `settings` and `tasks_sharing` are as in `MemoryShare`."""

    settings: Settings = field(kw_only=True)
    tasks_sharing: int | None = field(kw_only=True)

    @property
    def share(self) -> MemoryShare:
        """The share given by the task's own fields."""
        return MemoryShare(self.settings, self.tasks_sharing)


def check_version(version: str) -> None:
    """Reject input from another version of sparkext, on the driver or in its jar: its format may differ.

    Raises
    ------
    EnvironmentProblemError
        The versions differ. The message names both.
    """
    if version != __version__:
        raise EnvironmentProblemError(
            f"the driver or its jar has sparkext {version}, but this worker ({sys.executable}) has sparkext"
            f" {__version__}: install the same version on the driver and on all nodes, and load the jar that"
            " `python -m sparkext jar` prints on the driver"
        )


class _CollectionTimer:
    """Measures the last full garbage collection. Spark triggers one after every task."""

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

_collections = lru_cache(maxsize=1)(_CollectionTimer)


def _freeze_modules() -> None:
    """Freeze loaded modules out of the garbage collector: Spark runs a full collection after every task.

    With numba and a few kernels loaded, a collection takes 60 to 180 ms, half of the run time of short tasks. The
    extension's daemon freezes its objects before it forks, but tasks load more modules. The freeze is therefore
    repeated before a task if the last collection was slow. The frozen objects are modules, kernels and caches.
    Reference counting still frees them, unless they are in cycles. If the address space is limited, the process also
    reserves less of it from then on (`address_space.spare`).
    """
    collections = _collections()
    if collections.seconds > _SLOW_SECONDS:
        gc.freeze()
        collections.seconds = 0.0
        address_space.spare()


@contextmanager
def _register_task(settings: Settings, tasks_sharing: int | None) -> Iterator[Tasks]:
    """Register this task as one that shares the memory, and apply its memory limit.

    Yield the function that counts the registered tasks. Within this context, a process requests the identity of each
    remote file only once per run of the query.
    """
    otherwise = tasks_sharing or len(os.sched_getaffinity(0))
    with (
        process_probe().limited(settings.memory_max_bytes),
        task_entered(otherwise) as tasks,
        cache_identities(_find_execution_id()),
    ):
        yield tasks


def _find_execution_id() -> str | None:
    """Return the execution id of the query that this task belongs to, None if unknown."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("spark.sql.execution.id")


def count_owned_cores() -> int:
    """Return the number of cores that this task owns."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else max(1, context.cpus())


def task_id() -> TaskId:
    """Return the stage, partition and attempt number of this task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return NO_TASK
    return TaskId(context.stageId(), context.partitionId(), context.attemptNumber())
