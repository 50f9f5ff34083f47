"""Whether a session has the extension, and what that says of a plan."""

from __future__ import annotations

from typing import Any

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
    return has_extension(session) and session.conf.get("spark.sparkext.mode", "auto").lower() != "off"


def planned_runs(frame: Any) -> list[tuple[list[str], list[str], str | None]]:
    """Return per pipeline in the plan of `frame`: labels of its joins, the reports of its last run's tasks, and why it
    fell back to Spark's own joins, if it did.
    """
    runs = _plans(frame).of(frame._jdf.queryExecution())
    return [(list(run.joins()), list(run.reports()), run.fellBack()) for run in runs]


def declined_joins(frame: Any) -> list[str]:
    """Return the reasons of all joins in the plan of `frame` that are Spark's own, or were when they last ran."""
    return list(_plans(frame).declined(frame._jdf.queryExecution()))


def _plans(frame: Any) -> Any:
    return frame.sparkSession.sparkContext._jvm.org.apache.spark.sql.sparkext.PipelineRuns
