"""`declined`: which joins of a DataFrame the session extension left to Spark, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkext.errors import ExtensionMissingError
from sparkext.spark.extension import declined_joins, has_extension
from sparkext.spark.session_settings import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def declined(frame: DataFrame) -> list[str]:
    """Return the reason of every join in the plan of `frame` that is Spark's own, from the top of the plan down.

    The same reasons stand in `frame.explain()`, but for those of as-of joins, which come last: Spark rewrites these as
    other joins. With `spark.sparkext.mode=hint` only hinted joins have one, with `off` none. Plans the DataFrame, but
    does not run it. Where a pipeline fell back to Spark's own joins when it last ran, as a build side did not fit, that
    reason is among them.

    Raises
    ------
    ExtensionMissingError
        The session runs without the extension, or through Spark Connect, whose clients see no plans.
    """
    if is_connect(frame.sparkSession):
        raise ExtensionMissingError("plans are out of reach through Spark Connect: explain() shows the same reasons")
    if not has_extension(frame.sparkSession):
        raise ExtensionMissingError(
            "this session has not loaded the extension: build it with sparkext.configure(SparkSession.builder)"
        )
    return declined_joins(frame)
