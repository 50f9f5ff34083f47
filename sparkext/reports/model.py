"""What happened in one run of a pipeline, per join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkext.parquet.metrics import ScanMetrics, merged_scans
from sparkext.plans.operator_summary import OperatorSummary
from sparkext.reports.metrics import TaskMetrics, merged_operators
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


@dataclass(frozen=True, repr=False)
class Report:
    """The last run: one entry per join, and one for the payload gather.

    Printed it is a table; a notebook shows it with a timeline of budgets and headroom; `to_pandas` and
    `decisions_to_pandas` give DataFrames. `tasks` holds everything each task told, `notes` what the report lacks,
    `slots` how the work of a partitioned join was dealt out.
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

    def __str__(self) -> str:
        """Lay the report out for a terminal."""
        from sparkext.reports.text import laid_out

        return laid_out(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Lay the report out for a notebook."""
        from sparkext.reports.html import laid_out

        return laid_out(self)


def summarise(
    labels: list[str], tasks: list[TaskMetrics], notes: tuple[str, ...] = (), slots: str | None = None
) -> Report:
    """Add up the tasks of one run; a task that told nothing of its operators is left out. `slots`: loads, as JSON."""
    tasks = [task for task in tasks if task.operators]
    operators = merged_operators(tasks)
    rows_out = [sum(rows) for rows in zip(*(task.rows_out() for task in tasks), strict=True)]
    seconds = [sum(task.seconds[number] for task in tasks) for number in range(len(operators))]
    joins = []
    for number, label in enumerate(labels):
        indexes = [task.indexes[number] for task in tasks]
        info = indexes[0]
        # Tasks share the index of a replicated build side; those of a partitioned one hold different rows.
        counted = indexes if info["is_partition"] else indexes[:1]
        joins.append(
            _entry(
                label,
                operators[number],
                rows_out[number],
                seconds[number],
                index=", ".join(dict.fromkeys(index["kind"] for index in counted)),
                reason=info["reason"],
                build_rows=sum(index["build_rows"] for index in counted),
                build_bytes=sum(index["build_bytes"] for index in counted),
                index_bytes=sum(index["bytes"] for index in counted),
                build_seconds=max(index["seconds"] for index in indexes),
                index_reused=all(index["reused"] for index in indexes),
                made_by=tuple(info.get("made_by", ())),
            )
        )
    for number, name in enumerate(tasks[0].behind, len(labels)):
        joins.append(_entry(name, operators[number], rows_out[number], seconds[number]))
    loads = None if slots is None else SlotLoads.of(slots, tasks)
    return Report(tuple(joins), tuple(tasks), notes, loads)


def _entry(
    operator: str,
    summary: OperatorSummary,
    rows_out: int,
    seconds: float,
    *,
    index: str | None = None,
    reason: str | None = None,
    build_rows: int | None = None,
    build_bytes: int | None = None,
    index_bytes: int | None = None,
    build_seconds: float | None = None,
    index_reused: bool | None = None,
    made_by: tuple[str, ...] = (),
) -> JoinReport:
    return JoinReport(
        operator=operator,
        rows_in=summary["rows_in"],
        rows_out=rows_out,
        # The controller bounds what a join finds, before a condition drops some of it.
        pairs_tried=summary["rows_out"] if summary["rows_out"] > rows_out else None,
        index=index,
        reason=reason,
        build_rows=build_rows,
        build_bytes=build_bytes,
        index_bytes=index_bytes,
        build_seconds=build_seconds,
        index_reused=index_reused,
        made_by=made_by,
        morsels=summary["calls"],
        budget_min=summary["budget_min"],
        budget_median=summary["budget_median"],
        budget_max=summary["budget_max"],
        lowest_headroom=summary["headroom_min"],
        headroom_limit=summary["headroom_limit"],
        seconds=seconds,
    )
