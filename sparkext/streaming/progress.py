"""The progress counters of stream tasks: a column of their output, which Spark observes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

PROGRESS = "__sparkext"
"""The last column of emitted batches: null, except in the one row in which a task reports its progress."""


def add_progress_column(fields: Sequence[StructField], counters: Sequence[str]) -> StructType:
    """Return the columns that tasks emit: `fields`, and a struct of progress counters with these names."""
    from pyspark.sql.types import LongType, StructField, StructType

    progress = StructType([StructField(name, LongType()) for name in counters])
    return StructType([*fields, StructField(PROGRESS, progress)])


def remove_progress_rows(frame: DataFrame, counters: Sequence[str], metrics: str | None) -> DataFrame:
    """Remove the progress rows. If `metrics` is given, Spark observes the sums of their counters under that name."""
    from pyspark.sql import functions as F

    if metrics is not None:
        frame = frame.observe(metrics, *(F.sum(f"{PROGRESS}.{name}").alias(name) for name in counters))
    return frame.where(F.col(PROGRESS).isNull()).drop(PROGRESS)
