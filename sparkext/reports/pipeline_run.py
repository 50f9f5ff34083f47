"""The figures of one run of a pipeline, for each join, without the ways to show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkext.parquet.metrics import ScanMetrics, merged_scans
from sparkext.reports.metrics import TaskMetrics
from sparkext.reports.slot_loads import SlotLoads

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class JoinReport:
    """One operator of the chain. Bytes, rows and seconds; None where it does not apply or is not known.

    `rows_out` are the rows that the next operator was given. `pairs_tried`: about how many pairs of rows a condition
    beside the keys was tried on, None without one. `build_bytes` is the Arrow size of the build side's columns,
    `index_bytes` what the index over them takes. `build_seconds`: what building the index took, the longest on any
    node. Of a partitioned build side, rows and bytes are sums over the partitions: a row that several partitions have
    counts for each. `index_reused`: an earlier query had left it in the cache. `made_by`: what the pipelines did that
    made the build side, a line each, the lowest first. `seconds`: time in the operator's kernels, added up over the
    tasks, which ran side by side.
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
    """One entry per join, and one for the payload gather.

    `tasks`: the metrics of each task. `notes`: restrictions of the report. `slots`: the loads of a partitioned join.
    """

    joins: tuple[JoinReport, ...]
    tasks: tuple[TaskMetrics, ...]
    notes: tuple[str, ...] = ()
    slots: SlotLoads | None = None

    @property
    def scan(self) -> ScanMetrics | None:
        """What the tasks read of the probe side's files together, or None if its rows came from Spark."""
        scans = [task.scan for task in self.tasks if task.scan is not None]
        return merged_scans(scans) if scans else None

    @property
    def started(self) -> float:
        """When the first task had its build sides and began to join, in seconds since the epoch."""
        return min(task.started for task in self.tasks)

    @property
    def elapsed_seconds(self) -> float:
        """From then until the last task ended."""
        return max(task.started + task.elapsed_seconds for task in self.tasks) - self.started

    def to_pandas(self) -> pd.DataFrame:
        """One row per operator, the columns of `JoinReport` and `fan_out`."""
        import pandas as pd

        return pd.DataFrame([{**vars(join), "fan_out": join.fan_out} for join in self.joins])

    def decisions_to_pandas(self) -> pd.DataFrame:
        """One row per budget decision that a task has kept, in order of time: what the timeline is drawn from.

        Columns: `time` (UTC), `partition` (the task's), `operator` (its place in `joins`), `headroom` in bytes,
        `budget` and `produced` in rows. A task keeps up to `spark.sparkext.report.decisions`.
        """
        import pandas as pd

        names = ["time", "partition", "operator", "headroom", "budget", "produced"]
        told = sorted(
            (time, task.task.partition, operator, -1 if headroom is None else headroom, budget, produced)
            for task in self.tasks
            for time, operator, headroom, budget, produced in task.decisions
        )
        frame = pd.DataFrame(told, columns=names)
        frame["time"] = pd.to_datetime(frame["time"], unit="s", utc=True)
        frame["headroom"] = frame["headroom"].astype("Int64").mask(frame["headroom"] == -1)
        return frame
