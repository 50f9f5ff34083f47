"""The extension of a session: whether it is loaded, and the runs and reasons that it reports for a plan."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparkext.config import MODE
from sparkext.spark import jvm
from sparkext.spark.launch import split_list
from sparkext.spark.session_settings import is_connect

EXTENSION = "io.sparkext.SparkExtensions"
"""The class name in `spark.sql.extensions` that loads the session extension."""


def has_extension(session: Any) -> bool:
    """Return whether a classic session has loaded the extension: it is configured, and the JVM has its classes.

    If the JVM lacks the classes, Spark only logs a warning.
    """
    if is_connect(session):
        return False
    extensions = str(session.sparkContext.getConf().get("spark.sql.extensions", ""))
    return EXTENSION in split_list(extensions) and jvm.finds(EXTENSION) is True


def plans_joins(session: Any) -> bool:
    """Return whether the extension plans hinted joins of this session: it is loaded and not switched off."""
    mode, _ = MODE.read_configured(session.conf.get(MODE.name, None))
    return has_extension(session) and mode != "off"


class PlannedRun(NamedTuple):
    """The last run of a pipeline.

    `joins` are the labels of its joins, `reports` the metrics of its tasks as JSON. `partitions` are the loads of its
    partitions as JSON, None if it is no partitioned join. `fell_back` is the reason of a fallback to Spark's own joins,
    None if there was none.
    """

    joins: list[str]
    reports: list[str]
    partitions: str | None
    fell_back: str | None


def find_planned_runs(frame: Any) -> list[PlannedRun]:
    """Return the last run of each pipeline in the plan of `frame`, top down."""
    runs = _access_runs(frame).of(frame._jdf.queryExecution())
    return [PlannedRun(list(run.joins()), list(run.reports()), run.partitions(), run.fellBack()) for run in runs]


def list_declined_joins(frame: Any) -> list[str]:
    """Return the reasons of all joins in the plan of `frame` that are Spark's own, or were in their last run."""
    return list(_access_runs(frame).declined(frame._jdf.queryExecution()))


def _access_runs(frame: Any) -> Any:
    return jvm.access_class(frame.sparkSession.sparkContext._jvm, "org.apache.spark.sql.sparkext.protocol.PipelineRuns")
