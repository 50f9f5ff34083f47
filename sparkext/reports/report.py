"""The report of the last run of a pipeline: its figures, and their display on terminals and in notebooks."""

from __future__ import annotations

from dataclasses import dataclass

from sparkext.plans.adaptive.operator_summary import OperatorSummary
from sparkext.reports import html, text
from sparkext.reports.metrics import TaskMetrics, sum_operators
from sparkext.reports.partition_loads import PartitionLoads
from sparkext.reports.pipeline_run import JoinReport, PipelineRun


@dataclass(frozen=True, repr=False)
class Report(PipelineRun):
    """The last run of a pipeline.

    Printed, it is a table. A notebook shows it with a timeline of budgets and headroom. `to_pandas` and
    `decisions_to_pandas` return DataFrames. `joins` has one entry per join, then one per following operator, the last
    of which is the sink. `tasks` has the metrics of each task, `notes` states limitations of the report, and
    `partitions` has the loads of the partitions of a partitioned join.
    """

    def __str__(self) -> str:
        """Return the report as text."""
        return text.render_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the report as HTML."""
        return html.render_html(self)


def summarise(
    labels: list[str], tasks: list[TaskMetrics], notes: tuple[str, ...] = (), partitions: str | None = None
) -> Report:
    """Return the report of one run: sums over the tasks that report operators. `partitions`: their loads as JSON."""
    tasks = [task for task in tasks if task.operators]
    operators = sum_operators(tasks)
    rows_out = [sum(rows) for rows in zip(*(task.rows_out() for task in tasks), strict=True)]
    seconds = [sum(task.seconds[number] for task in tasks) for number in range(len(operators))]
    joins = []
    for number, label in enumerate(labels):
        indexes = [task.indexes[number] for task in tasks]
        info = indexes[0]
        # Tasks share the index of a replicated build side. Indexes of a partitioned build side hold different rows.
        counted = indexes if info["is_partition"] else indexes[:1]
        joins.append(
            _make_entry(
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
        joins.append(_make_entry(name, operators[number], rows_out[number], seconds[number]))
    loads = None if partitions is None else PartitionLoads.of(partitions, tasks)
    return Report(tuple(joins), tuple(tasks), notes, loads)


def _make_entry(
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
        # The summary counts the pairs that a join finds, before its condition drops some of them.
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
