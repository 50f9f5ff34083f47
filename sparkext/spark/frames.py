"""DataFrames, classic and Connect, whatever the names of their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkext.spark.worker_python import run_in_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def is_dataframe(value: object) -> bool:
    """Return whether `value` is a Spark DataFrame, classic or Connect."""
    from pyspark.sql import DataFrame

    if isinstance(value, DataFrame):
        return True
    return type(value).__module__ == "pyspark.sql.connect.dataframe" and type(value).__name__ == "DataFrame"


def is_cached(frame: DataFrame) -> bool:
    """Return whether Spark keeps, or will keep, the rows of this DataFrame."""
    return bool(frame.is_cached)


def quoted(name: str) -> str:
    """Quote a column name, so that dots and backticks in it mean themselves."""
    return "`" + name.replace("`", "``") + "`"


def pick(frame: DataFrame, positions: tuple[int, ...]) -> DataFrame:
    """Return the columns at these positions; for none, one constant column, as rows without columns get lost."""
    from pyspark.sql import functions as F

    names = frame.columns
    if not positions:
        return frame.select(F.lit(0).alias("c0"))
    if positions == tuple(range(len(names))):
        return frame
    return frame.select(*(quoted(names[position]) for position in positions))


def map_in_arrow(frame: DataFrame, task: Any, schema: StructType | str) -> DataFrame:
    """Run `task` over the batches of `frame`, whose columns it sees by position only.

    PySpark looks up the columns of the input by name, which fails for names with dots or backticks, and loses the rows
    of an input without columns: the input is renamed, and given a column if it has none.
    """
    width = len(frame.columns)
    plain = frame.toDF(*(f"c{number}" for number in range(width))) if width else pick(frame, ())
    return run_in_workers(plain, task, schema)
