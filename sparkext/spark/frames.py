"""Operations on DataFrames, classic and Connect, that work with any column names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from sparkext.spark.worker_python import run_in_workers

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


def is_dataframe(value: object) -> bool:
    """Return whether `value` is a Spark DataFrame, classic or Connect."""
    from pyspark.sql import DataFrame

    if isinstance(value, DataFrame):
        return True
    return type(value).__module__ == "pyspark.sql.connect.dataframe" and type(value).__name__ == "DataFrame"


def is_column(value: object) -> TypeGuard[Column]:
    """Return whether `value` is a Column, classic or Connect."""
    return type(value).__name__ == "Column" and type(value).__module__.startswith("pyspark.sql.")


def is_cached(frame: DataFrame) -> bool:
    """Return whether the DataFrame is marked to be cached by Spark."""
    return bool(frame.is_cached)


def quote_name(name: str) -> str:
    """Quote a column name, so that dots and backticks in it are taken literally."""
    return "`" + name.replace("`", "``") + "`"


def pick(frame: DataFrame, positions: tuple[int, ...]) -> DataFrame:
    """Return the columns at these positions; without positions, one constant column, which keeps the number of rows."""
    from pyspark.sql import functions as F

    names = frame.columns
    if not positions:
        return frame.select(F.lit(0).alias("c0"))
    if positions == tuple(range(len(names))):
        return frame
    return frame.select(*(quote_name(names[position]) for position in positions))


def map_in_arrow(frame: DataFrame, task: Any, schema: StructType | str) -> DataFrame:
    """Run `task` over the batches of `frame`. The task receives the columns by position, under other names.

    PySpark looks up the columns of the input by name, which fails for names with dots or backticks, and loses the rows
    of an input without columns. So this function renames the columns, and adds a column if there is none.
    """
    width = len(frame.columns)
    plain = frame.toDF(*(f"c{number}" for number in range(width))) if width else pick(frame, ())
    return run_in_workers(plain, task, schema)
