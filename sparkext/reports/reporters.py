"""Transport of task metrics to the driver: an accumulator in classic sessions, spooled files through Connect.

Reporting never fails a query: metrics that cannot be written are missing from the report, which states how many tasks
it covers.
"""

from __future__ import annotations

import contextlib
import uuid
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from sparkext.kernels.runtime.local_folder import create_private_folder
from sparkext.reports.metrics import TaskMetrics, select_last_run
from sparkext.storage.container import private_file
from sparkext.storage.local_folder import beside_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TaskReporter(Protocol):
    """Sends metrics from tasks."""

    def report(self, metrics: TaskMetrics) -> None:
        """Send the metrics of one finished task. Called in a worker."""
        ...


class Reporter(TaskReporter, Protocol):
    """Sends metrics from tasks (`report`), and receives them on the driver (`collect`)."""

    def collect(self, session: SparkSession) -> list[TaskMetrics]:
        """Return the metrics of the last run. Called on the driver."""
        ...


class AccumulatorReporter:
    """Sends metrics by a Spark accumulator: complete, and without an additional job."""

    def __init__(self, session: SparkSession) -> None:
        """Register the accumulator."""
        from pyspark.accumulators import AccumulatorParam

        class LastRun(AccumulatorParam):  # type: ignore[type-arg]
            """Merges lists of metrics, each of one stage: the list of the later stage replaces the other."""

            def zero(self, value: list[TaskMetrics]) -> list[TaskMetrics]:
                return []

            def addInPlace(self, value1: list[TaskMetrics], value2: list[TaskMetrics]) -> list[TaskMetrics]:
                if not value1 or not value2:
                    return value1 or value2
                if value1[0].task.stage != value2[0].task.stage:
                    return max(value1, value2, key=lambda tasks: tasks[0].task.stage)
                value1.extend(value2)
                return value1

        self._accumulator: Any = session.sparkContext.accumulator([], LastRun())
        # PySpark keeps an accumulator until the application ends, so empty it with the reporter.
        weakref.finalize(self, _empty, self._accumulator).atexit = False

    def report(self, metrics: TaskMetrics) -> None:
        """Send the metrics of one finished task."""
        self._accumulator.add([metrics])

    def collect(self, session: SparkSession) -> list[TaskMetrics]:
        """Return the metrics of the last run."""
        return select_last_run(self._accumulator.value)


def _empty(accumulator: Any) -> None:
    accumulator.value = []


class SpoolReporter:
    """Writes metrics to small files in each node's artifact folder, which a job reads.

    Spark Connect has no accumulators. On a cluster, the job only reaches nodes on which Spark schedules its tasks, so
    metrics of other nodes may be missing. Spark deletes the files with the session.
    """

    def __init__(self) -> None:
        """Choose the folder's name."""
        self._folder = f"sparkext-report-{uuid.uuid4().hex}"

    def report(self, metrics: TaskMetrics) -> None:
        """Write the metrics of one finished task."""
        task = metrics.task
        with contextlib.suppress(OSError):
            folder = create_private_folder(self._path())
            with private_file(folder / f"{task.stage}-{task.partition}-{task.attempt}.json") as stream:
                stream.write(metrics.to_json().encode())

    def collect(self, session: SparkSession) -> list[TaskMetrics]:
        """Run a job that reads the files of the nodes, and return the metrics of the last run."""
        readers = 16
        rows = session.range(0, readers, 1, readers).mapInArrow(self._read, "metrics string").distinct().collect()
        return select_last_run(TaskMetrics.from_json(row["metrics"]) for row in rows)

    def _read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            texts = [path.read_text() for path in sorted(self._path().glob("*.json"))]
            yield pa.record_batch([pa.array(texts, pa.string())], names=["metrics"])

    def _path(self) -> Path:
        from pyspark import SparkFiles

        return Path(SparkFiles.getRootDirectory()) / self._folder


@dataclass(frozen=True)
class FileReporter:
    """Writes metrics to a file in the executor's local folder, which the task in the JVM reads. `run` is the run id."""

    run: str

    def report(self, metrics: TaskMetrics) -> None:
        """Write the metrics of one finished task."""
        with contextlib.suppress(OSError):
            path = beside_task(self.run, "report")
            if path is None:
                return
            with private_file(path) as stream:
                stream.write(metrics.to_json().encode())
