"""A report as plain text, for terminals."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sparkext.wording import format_bytes, format_count, format_ratio, format_table

if TYPE_CHECKING:
    from sparkext.reports.pipeline_run import JoinReport, PipelineRun

_HEADER = (
    "operator",
    "rows in",
    "rows out",
    "fan-out",
    "index",
    "build rows",
    "build size",
    "index size",
    "built in",
    "morsels",
    "budget min/med/max",
    "lowest headroom",
    "in kernels",
)
_LEFT_ALIGNED = (0, 4)


def render_text(report: PipelineRun) -> str:
    """Return a table of the operators, lines about tasks, files, partitions and join orders, and the notes."""
    table = format_table(_HEADER, [_format_operator_cells(join) for join in report.joins], _LEFT_ALIGNED)
    lines = [*describe_files(report), *describe_builds(report), *describe_partitions(report), *describe_orders(report)]
    return "\n".join([table, describe_tasks(report), *lines, *report.notes])


def describe_tasks(report: PipelineRun) -> str:
    """Return a line with the number of tasks, their input rows, and their peak memory."""
    rows_in = sum(task.rows_in for task in report.tasks)
    peak = max((task.peak_rss_bytes for task in report.tasks), default=0)
    return f"{format_count(len(report.tasks), 'task')}, {rows_in:,} rows in, peak worker memory {format_bytes(peak)}"


def describe_files(report: PipelineRun) -> list[str]:
    """Return a sentence on the files of the probe side that workers have read themselves, or none."""
    scan = report.scan
    if scan is None:
        return []
    return [
        f"workers read {format_bytes(scan.bytes)}: {format_count(scan.rows, 'row')} in"
        f" {format_count(scan.row_groups, 'row group')}, {scan.row_groups_pruned} more were skipped by statistics"
    ]


def describe_builds(report: PipelineRun) -> list[str]:
    """Return the lines about pipelines that derived the probe side or build sides."""
    return [
        *(f"probe side: {line}" for line in report.tasks[0].source),
        *(f"build side of {join.operator}: {line}" for join in report.joins for line in join.made_by),
    ]


def describe_partitions(report: PipelineRun) -> list[str]:
    """Return a sentence on the partition loads of a partitioned join, or none."""
    return [] if report.partitions is None else [str(report.partitions)]


def describe_orders(report: PipelineRun) -> list[str]:
    """Return sentences on joins that ran in another order than the query's, or on reduced build sides."""
    of_all_tasks = f"of {format_count(len(report.tasks), 'task')}"
    orders = Counter(tuple(task.order) for task in report.tasks if task.order)
    reduced = Counter(reduction for task in report.tasks for reduction in task.reduced)
    return [
        *(
            f"{count} {of_all_tasks} ran the joins in the order {', '.join(str(n + 1) for n in order)}"
            for order, count in sorted(orders.items())
        ),
        *(
            f"{count} {of_all_tasks} used only {format_count(rows, 'build row')} of join {number + 1}: semi-join"
            " reductions dropped the rest"
            for (number, rows), count in sorted(reduced.items())
        ),
    ]


def _format_operator_cells(join: JoinReport) -> tuple[str, ...]:
    budgets = (join.budget_min, join.budget_median, join.budget_max)
    return (
        join.operator,
        f"{join.rows_in:,}",
        f"{join.rows_out:,}",
        format_ratio(join.fan_out),
        join.index or "",
        "" if join.build_rows is None else f"{join.build_rows:,}",
        "" if join.build_bytes is None else format_bytes(join.build_bytes),
        "" if join.index_bytes is None else format_bytes(join.index_bytes),
        _describe_build_time(join),
        f"{join.morsels:,}",
        "" if None in budgets else "/".join(str(budget) for budget in budgets),
        "" if join.lowest_headroom is None else f"{format_bytes(join.lowest_headroom)} ({join.headroom_limit})",
        f"{join.seconds:.3f} s",
    )


def _describe_build_time(join: JoinReport) -> str:
    if join.build_seconds is None:
        return ""
    return "(reused)" if join.index_reused else f"{join.build_seconds:.3f} s"
