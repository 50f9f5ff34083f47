"""Whether a session has the extension, and what that says of a plan."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparkext.config import MODE
from sparkext.spark import jvm
from sparkext.spark.launch import listed
from sparkext.spark.session_settings import is_connect

EXTENSION = "io.sparkext.SparkExtensions"
"""What `spark.sql.extensions` names to load the session extension."""


def has_extension(session: Any) -> bool:
    """Return whether a classic session has loaded the extension: it is asked for, and its classes are there.

    Spark warns where they are not, and goes on.
    """
    if is_connect(session):
        return False
    asked_for = str(session.sparkContext.getConf().get("spark.sql.extensions", ""))
    return EXTENSION in listed(asked_for) and jvm.finds(EXTENSION) is True


def plans_joins(session: Any) -> bool:
    """Return whether hinted joins of this session are planned by the extension: it is loaded and not switched off."""
    mode, _ = MODE.read_configured(session.conf.get(MODE.name, None))
    return has_extension(session) and mode != "off"


class PlannedRun(NamedTuple):
    """The last run of a pipeline: labels of its joins, the reports of its tasks and the loads of its slots as JSON, and
    why it fell back to Spark's own joins. None for what there is not.
    """

    joins: list[str]
    reports: list[str]
    slots: str | None
    fell_back: str | None


def planned_runs(frame: Any) -> list[PlannedRun]:
    """Return the last run of each pipeline in the plan of `frame`, top down."""
    runs = _plans(frame).of(frame._jdf.queryExecution())
    return [PlannedRun(list(run.joins()), list(run.reports()), run.slots(), run.fellBack()) for run in runs]


def declined_joins(frame: Any) -> list[str]:
    """Return the reasons of all joins in the plan of `frame` that are Spark's own, or were when they last ran."""
    return list(_plans(frame).declined(frame._jdf.queryExecution()))


def _plans(frame: Any) -> Any:
    return frame.sparkSession.sparkContext._jvm.org.apache.spark.sql.sparkext.PipelineRuns
