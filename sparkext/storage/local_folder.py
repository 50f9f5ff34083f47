"""The executor's local folder (`local_folder`), and files in it with which workers and JVM tasks exchange data."""

from __future__ import annotations

from pathlib import Path

from sparkext.kernels.runtime.local_folder import local_folder

__all__ = ["beside_task", "local_folder"]


def beside_task(run: str, name: str) -> Path | None:
    """Return the file with which this worker and its task in the JVM exchange data about a run; None without a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else local_folder() / f"{run}.{context.taskAttemptId()}.{name}"
