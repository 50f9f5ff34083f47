"""`report`: the metrics of a pipeline's last run."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, overload

from sparkext.errors import ReportUnavailableError
from sparkext.joins.lineage import find_lineage
from sparkext.reports.metrics import TaskMetrics, select_last_run
from sparkext.reports.report import Report, summarise
from sparkext.reports.stream_report import StreamReport, read_stream_report
from sparkext.spark.extension import find_planned_runs, has_extension
from sparkext.spark.frames import is_dataframe
from sparkext.spark.session_settings import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


@overload
def report(frame: DataFrame) -> Report: ...


@overload
def report(frame: StreamingQuery) -> StreamReport: ...


def report(frame: DataFrame | StreamingQuery) -> Report | StreamReport:
    """Return the report of a pipeline's last run, or of a streaming query's most recent batches.

    `frame` is a DataFrame that a transform of this package has returned, or one whose plan has a join that the session
    extension planned. If the plan has several pipelines, the report is about the topmost. Call the function after an
    action on `frame` or on a DataFrame derived from it. Through Spark Connect it runs a small job that reads the
    metrics from the nodes. In classic sessions, a task that a LIMIT stops early reports nothing, because Spark stops
    reading the task's output before the task sends its metrics.

    A streaming query may be running or stopped; its report is about its stream joins and `ordered` operators.

    Raises
    ------
    ReportUnavailableError
        `frame` was not returned by a transform and has no pipelined join in its plan, has not run yet, or fell back to
        Spark's own joins in its last run. For a streaming query: no finished batch has metrics of these operators.
    """
    if _is_query(frame):
        stream_report = read_stream_report(cast("StreamingQuery", frame).recentProgress)
        if not stream_report.batches:
            raise ReportUnavailableError(
                "this query has no stream join or ordered operator, or has not finished a batch yet"
            )
        return stream_report
    return _report_frame(cast("DataFrame", frame))


def _report_frame(frame: DataFrame) -> Report:
    lineage = find_lineage(frame)
    if lineage is not None and lineage.reporter is not None:
        labels = [join.label for join in lineage.spec.joins]
        notes = (_SPOOL_NOTE,) if is_connect(frame.sparkSession) else ()
        return _assemble_report(labels, lineage.reporter.collect(frame.sparkSession), notes)
    if not is_dataframe(frame):
        raise ReportUnavailableError(f"{_EXPECTED_FRAME}; got {type(frame).__name__}")
    if is_connect(frame.sparkSession):
        raise ReportUnavailableError(f"{_EXPECTED_FRAME}. {_CONNECT_UNSUPPORTED}")
    if not has_extension(frame.sparkSession):
        raise ReportUnavailableError(_EXPECTED_FRAME)
    runs = find_planned_runs(frame)
    if not runs:
        raise ReportUnavailableError(
            "the plan of this DataFrame has no pipelined join; sparkext.declined(df) shows why"
        )
    run = runs[0]
    if run.fell_back is not None:
        raise ReportUnavailableError(f"Spark's own joins ran in place of this pipeline: {run.fell_back}")
    notes = (_TOPMOST_NOTE.format(len(runs)),) if len(runs) > 1 else ()
    tasks = list(select_last_run(TaskMetrics.from_json(text) for text in run.reports))
    return _assemble_report(run.joins, tasks, notes, run.partitions)


_EXPECTED_FRAME = (
    "report expects the DataFrame that transform(pipelined_join(...)) returned: keep it before you derive other"
    " DataFrames from it"
)


_CONNECT_UNSUPPORTED = (
    "Joins planned by a Connect server's session extension are not reported to clients: look at the operator"
    " PipelinedJoin in Spark's UI"
)


_SPOOL_NOTE = (
    "Through Spark Connect, tasks store their metrics on their nodes, and a small job collects them. On a cluster, the"
    " metrics of nodes that this job did not reach are missing."
)


_TOPMOST_NOTE = (
    "The plan has {} pipelines, and this report is about the topmost. Spark's UI shows the metrics of each pipeline, at"
    " its operator PipelinedJoin."
)


def _assemble_report(
    labels: list[str], tasks: list[TaskMetrics], notes: tuple[str, ...], partitions: str | None = None
) -> Report:
    if not any(task.operators for task in tasks):
        raise ReportUnavailableError(
            "this pipeline has not run yet: run an action on the DataFrame, then call report again. A run without tasks"
            " has no report either, nor, in a classic session, a run that limit, show or take stopped early"
        )
    return summarise(labels, tasks, notes, partitions)


def _is_query(value: object) -> bool:
    """Return whether `value` is a streaming query of a classic session."""
    from pyspark.sql.streaming.query import StreamingQuery

    return isinstance(value, StreamingQuery)
