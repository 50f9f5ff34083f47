"""Where a worker keeps what later tasks of its executor use again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sparkext.storage.publication import private_folder


def local_folder() -> Path:
    """Return this package's folder among the local files of the executor that this worker belongs to.

    Raises
    ------
    PermissionError
        See `private_folder`.
    """
    spark = os.environ.get("SPARK_LOCAL_DIRS")
    if not spark:  # outside of Spark, in a folder that all users share
        return private_folder(Path(tempfile.gettempdir()) / f"sparkext-{os.geteuid()}")
    return private_folder(Path(spark.split(",")[0]) / "sparkext")


def beside_task(run: str, name: str) -> Path | None:
    """Return the file of a run by which this worker and its task in the JVM tell each other something."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else local_folder() / f"{run}.{context.taskAttemptId()}.{name}"
