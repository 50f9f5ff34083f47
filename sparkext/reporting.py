"""`report`: what happened in the last run of a pipeline, per join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkext import spark_bridge
from sparkext.errors import ReportUnavailableError
from sparkext.lineage import remembered
from sparkext.metrics import ScanMetrics, TaskMetrics, last_run, merged_operators, merged_scans
from sparkext.plans.morsel import OperatorSummary

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class JoinReport:
    """One operator of the chain. Bytes, rows and seconds; None where it does not apply or is not known.

    `index_reused`: an earlier query had left the index in the cache.
    """

    operator: str
    rows_in: int
    rows_out: int
    index: str | None
    reason: str | None
    build_rows: int | None
    index_bytes: int | None
    build_seconds: float | None
    index_reused: bool | None
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
class Report:
    """The last run: one entry per join, and one for the payload gather.

    Print it for a table; `to_pandas` gives the same as a DataFrame; `tasks` holds everything each task told.
    `build_seconds` is what the one builder of the index took; `seconds` adds up the tasks, which ran side by side.
    """

    joins: tuple[JoinReport, ...]
    tasks: tuple[TaskMetrics, ...]

    @property
    def scan(self) -> ScanMetrics | None:
        """What the tasks read of the probe side's files together, or None if its rows came from Spark."""
        scans = [task.scan for task in self.tasks if task.scan is not None]
        return merged_scans(scans) if scans else None

    def to_pandas(self) -> pd.DataFrame:
        """One row per operator, the columns of `JoinReport` and `fan_out`."""
        import pandas as pd

        return pd.DataFrame([{**vars(join), "fan_out": join.fan_out} for join in self.joins])

    def __str__(self) -> str:
        """Lay the report out for a terminal."""
        rows = [_HEADER, *(_cells(join) for join in self.joins)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
        lines = [_line(row, widths) for row in rows]
        lines.insert(1, "  ".join("-" * width for width in widths))
        rows_in = sum(task.rows_in for task in self.tasks)
        peak = max((task.peak_rss_bytes for task in self.tasks), default=0)
        lines.append(f"{len(self.tasks)} tasks, {rows_in:,} rows in, peak worker memory {_size(peak)}")
        if self.scan is not None:
            lines.append(
                f"workers read {_size(self.scan.bytes)}: {self.scan.rows:,} rows in {self.scan.row_groups} row groups,"
                f" {self.scan.row_groups_pruned} more were ruled out by statistics"
            )
        return "\n".join(lines)


def report(frame: DataFrame) -> Report:
    """Tell what happened when `frame`, returned by `pipelined_join` or planned by the session extension, last ran.

    Where the plan has several pipelines, this is the topmost. Call it after an action on `frame` or on anything derived
    from it. Through Spark Connect this runs a small job that reads the metrics from the nodes. In classic sessions
    tasks that a limit cuts short tell nothing: Spark stops listening to them first.

    Raises
    ------
    ReportUnavailableError
        `frame` was not returned by `pipelined_join` and has no pipelined join in its plan, or has not run yet.
    """
    lineage = remembered(frame)
    if lineage is not None and lineage.reporter is not None:
        labels = [join.label for join in lineage.spec.joins]
        return _told(labels, lineage.reporter.collect(frame.sparkSession))
    if not spark_bridge.is_dataframe(frame) or not spark_bridge.has_extension(frame.sparkSession):
        raise ReportUnavailableError(
            "report needs the DataFrame that transform(pipelined_join(...)) returned; keep it before you derive others"
        )
    runs = spark_bridge.planned_runs(frame)
    if not runs:
        raise ReportUnavailableError(
            "the plan of this DataFrame has no pipelined join; sparkext.declined(df) tells why"
        )
    labels, reports = runs[0]
    return _told(labels, last_run(TaskMetrics.from_json(text) for text in reports))


def _told(labels: list[str], tasks: list[TaskMetrics]) -> Report:
    if not any(task.operators for task in tasks):
        raise ReportUnavailableError(
            "this pipeline has not run yet: run an action on the DataFrame, then ask again. A run without any task, or"
            " one that a limit, show or take cut short in a classic session, leaves no report either"
        )
    return summarise(labels, tasks)


def summarise(labels: list[str], tasks: list[TaskMetrics]) -> Report:
    """Add up the tasks of one run; a task that told nothing of its operators is left out."""
    tasks = [task for task in tasks if task.operators]
    operators = merged_operators(tasks)
    seconds = [sum(task.seconds[number] for task in tasks) for number in range(len(operators))]
    joins = []
    for number, label in enumerate(labels):
        info = tasks[0].indexes[number]
        built = max(task.indexes[number]["seconds"] for task in tasks)
        joins.append(
            _entry(
                label,
                operators[number],
                seconds[number],
                index=info["kind"],
                reason=info["reason"],
                build_rows=info["build_rows"],
                index_bytes=info["bytes"],
                build_seconds=built,
                index_reused=all(task.indexes[number]["reused"] for task in tasks),
            )
        )
    joins.append(_entry("gather payload", operators[-1], seconds[-1]))
    return Report(tuple(joins), tuple(tasks))


def _entry(
    operator: str,
    summary: OperatorSummary,
    seconds: float,
    *,
    index: str | None = None,
    reason: str | None = None,
    build_rows: int | None = None,
    index_bytes: int | None = None,
    build_seconds: float | None = None,
    index_reused: bool | None = None,
) -> JoinReport:
    return JoinReport(
        operator=operator,
        rows_in=summary["rows_in"],
        rows_out=summary["rows_out"],
        index=index,
        reason=reason,
        build_rows=build_rows,
        index_bytes=index_bytes,
        build_seconds=build_seconds,
        index_reused=index_reused,
        morsels=summary["calls"],
        budget_min=summary["budget_min"],
        budget_median=summary["budget_median"],
        budget_max=summary["budget_max"],
        lowest_headroom=summary["headroom_min"],
        headroom_limit=summary["headroom_limit"],
        seconds=seconds,
    )


_HEADER = (
    "operator",
    "rows in",
    "rows out",
    "fan-out",
    "index",
    "build rows",
    "size",
    "built in",
    "morsels",
    "budget min/med/max",
    "lowest headroom",
    "task time",
)
_LEFT_ALIGNED = (0, 4)


def _cells(join: JoinReport) -> tuple[str, ...]:
    budgets = (join.budget_min, join.budget_median, join.budget_max)
    return (
        join.operator,
        f"{join.rows_in:,}",
        f"{join.rows_out:,}",
        "" if join.fan_out is None else f"{join.fan_out:.3g}",
        join.index or "",
        "" if join.build_rows is None else f"{join.build_rows:,}",
        "" if join.index_bytes is None else _size(join.index_bytes),
        _built(join),
        f"{join.morsels:,}",
        "" if None in budgets else "/".join(str(budget) for budget in budgets),
        "" if join.lowest_headroom is None else f"{_size(join.lowest_headroom)} ({join.headroom_limit})",
        f"{join.seconds:.3f} s",
    )


def _built(join: JoinReport) -> str:
    if join.build_seconds is None:
        return ""
    return "(reused)" if join.index_reused else f"{join.build_seconds:.3f} s"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [
        cell.ljust(width) if column in _LEFT_ALIGNED else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")
