"""A report as plain text, for terminals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from sparkext.wording import counted, ratio, size

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


def laid_out(report: PipelineRun) -> str:
    """Return a table of the operators, lines about tasks, files, partitions and join orders, and the notes."""
    lines = table([_HEADER, *(_cells(join) for join in report.joins)], _LEFT_ALIGNED)
    told = [*files_told(report), *builds_told(report), *partitions_reported(report), *orders_told(report)]
    return "\n".join([*lines, tasks_told(report), *told, *report.notes])


def table(rows: Sequence[tuple[str, ...]], left_aligned: Container[int]) -> list[str]:
    """Return the lines of a table. The first row is its header; `left_aligned` has indexes of columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    header, *lines = (_line(row, widths, left_aligned) for row in rows)
    return [header, "  ".join("-" * width for width in widths), *lines]


def tasks_told(report: PipelineRun) -> str:
    """Return a line with the number of tasks, their input rows, and their peak memory."""
    rows_in = sum(task.rows_in for task in report.tasks)
    peak = max((task.peak_rss_bytes for task in report.tasks), default=0)
    return f"{counted(len(report.tasks), 'task')}, {rows_in:,} rows in, peak worker memory {size(peak)}"


def files_told(report: PipelineRun) -> list[str]:
    """Return a sentence on the files of the probe side that workers have read themselves, or none."""
    scan = report.scan
    if scan is None:
        return []
    return [
        f"workers read {size(scan.bytes)}: {counted(scan.rows, 'row')} in {counted(scan.row_groups, 'row group')},"
        f" {scan.row_groups_pruned} more were ruled out by statistics"
    ]


def builds_told(report: PipelineRun) -> list[str]:
    """Return the lines about pipelines that derived the probe side or build sides."""
    return [
        *(f"probe side: {line}" for line in report.tasks[0].source),
        *(f"build side of {join.operator}: {line}" for join in report.joins for line in join.made_by),
    ]


def partitions_reported(report: PipelineRun) -> list[str]:
    """Return a sentence on the partition loads of a partitioned join, or none."""
    return [] if report.partitions is None else [str(report.partitions)]


def orders_told(report: PipelineRun) -> list[str]:
    """Return sentences on joins that ran in another order than the query's, or on reduced build sides."""
    of_all = f"of {counted(len(report.tasks), 'task')}"
    orders = Counter(tuple(task.order) for task in report.tasks if task.order)
    reduced = Counter(told for task in report.tasks for told in task.reduced)
    return [
        *(
            f"{count} {of_all} ran the joins in the order {', '.join(str(n + 1) for n in order)}"
            for order, count in sorted(orders.items())
        ),
        *(
            f"{count} {of_all} went on with {counted(rows, 'build row')} of join {number + 1}: others drop the rest"
            for (number, rows), count in sorted(reduced.items())
        ),
    ]


def _cells(join: JoinReport) -> tuple[str, ...]:
    budgets = (join.budget_min, join.budget_median, join.budget_max)
    return (
        join.operator,
        f"{join.rows_in:,}",
        f"{join.rows_out:,}",
        ratio(join.fan_out),
        join.index or "",
        "" if join.build_rows is None else f"{join.build_rows:,}",
        "" if join.build_bytes is None else size(join.build_bytes),
        "" if join.index_bytes is None else size(join.index_bytes),
        _built(join),
        f"{join.morsels:,}",
        "" if None in budgets else "/".join(str(budget) for budget in budgets),
        "" if join.lowest_headroom is None else f"{size(join.lowest_headroom)} ({join.headroom_limit})",
        f"{join.seconds:.3f} s",
    )


def _built(join: JoinReport) -> str:
    if join.build_seconds is None:
        return ""
    return "(reused)" if join.index_reused else f"{join.build_seconds:.3f} s"


def _line(cells: tuple[str, ...], widths: list[int], left_aligned: Container[int]) -> str:
    padded = [
        cell.ljust(width) if column in left_aligned else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
