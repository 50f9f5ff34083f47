"""`declined`: the reasons why the session extension left joins of a DataFrame to Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkext.errors import ExtensionMissingError
from sparkext.spark.extension import has_extension, list_declined_joins
from sparkext.spark.session_settings import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def declined(frame: DataFrame) -> list[str]:
    """Return the reason of every join in the plan of `frame` that is Spark's own, from the top of the plan down.

    `frame.explain()` shows the same reasons, except the reasons of as-of joins, which Spark rewrites as other joins. In
    the list, the reasons of as-of joins come last. With `spark.sparkext.mode=hint` only hinted joins have a reason;
    with `off` there are no reasons. The call plans the DataFrame, but does not run it. If a pipeline fell back to
    Spark's own joins in its last run, because a build side did not fit, the list includes that reason.

    Raises
    ------
    ExtensionMissingError
        The session runs without the extension, or through Spark Connect, whose clients cannot read plans.
    """
    if is_connect(frame.sparkSession):
        raise ExtensionMissingError(
            "declined cannot read plans through Spark Connect: explain() shows the same reasons"
        )
    if not has_extension(frame.sparkSession):
        raise ExtensionMissingError(
            "this session has not loaded the extension: create it with sparkext.configure(SparkSession.builder)"
        )
    return list_declined_joins(frame)
