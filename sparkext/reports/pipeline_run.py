"""The figures of one run of a pipeline, for each operator, without their display."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkext.parquet.metrics import ScanMetrics, sum_scan_metrics
from sparkext.reports.metrics import TaskMetrics
from sparkext.reports.partition_loads import PartitionLoads

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class JoinReport:
    """The figures of one operator: bytes, rows and seconds. None if a figure does not apply or is unknown.

    `rows_out` are the rows that the next operator received. `pairs_tried` is the approximate number of pairs on which a
    condition in addition to the keys was evaluated, None if no pair was dropped by such a condition. `build_bytes` is
    the Arrow size of the build side's columns, `index_bytes` the size of the index. `build_seconds` is the time to
    build the index, the maximum over the tasks. For a partitioned build side, rows and bytes are sums over the
    partitions: a row in several partitions counts several times. `index_reused`: the index was cached by an earlier
    query. `made_by` describes the pipelines that derived the build side, one line each, innermost first. `seconds` is
    the time in the operator's kernels, summed over parallel tasks.
    """

    operator: str
    rows_in: int
    rows_out: int
    pairs_tried: int | None
    index: str | None
    reason: str | None
    build_rows: int | None
    build_bytes: int | None
    index_bytes: int | None
    build_seconds: float | None
    index_reused: bool | None
    made_by: tuple[str, ...]
    morsels: int
    budget_min: int | None
    budget_median: int | None
    budget_max: int | None
    lowest_headroom: int | None
    headroom_limit: str | None
    seconds: float

    @property
    def fan_out(self) -> float | None:
        """Result rows per input row, or None without input."""
        return self.rows_out / self.rows_in if self.rows_in else None


@dataclass(frozen=True)
class PipelineRun:
    """One run of a pipeline.

    `joins` has one entry per join, then one per following operator, the last of which is the sink. `tasks` are the
    metrics of each task, `notes` state limitations of the report, and `partitions` are the loads of the partitions of a
    partitioned join.
    """

    joins: tuple[JoinReport, ...]
    tasks: tuple[TaskMetrics, ...]
    notes: tuple[str, ...] = ()
    partitions: PartitionLoads | None = None

    @property
    def scan(self) -> ScanMetrics | None:
        """The scan metrics of the probe side's files, summed over the tasks; None if its rows came from Spark."""
        scans = [task.scan for task in self.tasks if task.scan is not None]
        return sum_scan_metrics(scans) if scans else None

    @property
    def started(self) -> float:
        """The time at which the first task had its build sides and began to join, in seconds since the epoch."""
        return min(task.started for task in self.tasks)

    @property
    def elapsed_seconds(self) -> float:
        """Seconds from `started` until the last task ended."""
        return max(task.started + task.elapsed_seconds for task in self.tasks) - self.started

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per operator, with the fields of `JoinReport` and `fan_out` as columns."""
        import pandas as pd

        return pd.DataFrame([{**vars(join), "fan_out": join.fan_out} for join in self.joins])

    def decisions_to_pandas(self) -> pd.DataFrame:
        """Return one row per recorded budget decision, in the order of time. The timeline shows the same data.

        Columns: `time` (UTC), `partition` (of the task), `operator` (its index in `joins`), `headroom` in bytes
        (missing if unknown), `budget` and `produced` in rows. A task records at most `spark.sparkext.report.decisions`
        decisions.
        """
        import pandas as pd

        names = ["time", "partition", "operator", "headroom", "budget", "produced"]
        rows = sorted(
            (time, task.task.partition, operator, -1 if headroom is None else headroom, budget, produced)
            for task in self.tasks
            for time, operator, headroom, budget, produced in task.decisions
        )
        frame = pd.DataFrame(rows, columns=names)
        frame["time"] = pd.to_datetime(frame["time"], unit="s", utc=True)
        frame["headroom"] = frame["headroom"].astype("Int64").mask(frame["headroom"] == -1)
        return frame
