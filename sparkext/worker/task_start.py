"""What every task does first, and what it may know of itself."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from sparkext import __version__
from sparkext.config import Settings
from sparkext.errors import EnvironmentProblemError
from sparkext.memory import address_space
from sparkext.memory.probes import Tasks, process_probe
from sparkext.memory.register import task_entered
from sparkext.parquet.file_stores import one_run
from sparkext.reports.metrics import NO_TASK, TaskId


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


@lru_cache(maxsize=1)
def settle() -> None:
    """Take what this process has loaded for what it is, no garbage: Spark has it all looked at after every task.

    Without the extension's daemon, which has done so before it forked, that takes 60 ms with numba loaded. And reserve
    no address space from then on, where it is short.
    """
    gc.freeze()
    address_space.spare()


@contextmanager
def entered(settings: Settings, tasks_sharing: int | None) -> Iterator[Tasks]:
    """Count this task among those that share the memory, plan within what is set for it, and ask for remote files only
    what its run has not; yield the count.

    `tasks_sharing` is as in `PipelineTask`.
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
