"""Parts of the DataFrames of all stream operators: the number of partitions, column names, and batches without rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkext.spark.frames import quote_name
from sparkext.spark.session_settings import read_parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def count_partitions(session: SparkSession) -> int:
    """Return the number of partitions, each with a state: Spark's shuffle partitions, at most the parallelism."""
    return max(1, min(int(session.conf.get("spark.sql.shuffle.partitions") or "1"), read_parallelism(session)))


def name_column(number: int) -> str:
    """Return the name of an intermediate column. Names of the result are arbitrary, and may repeat."""
    return f"c{number}"


def create_ticks(frame: DataFrame, time: str) -> DataFrame:
    """Return no rows. The stateful operator in their plan makes Spark run a batch when the watermark has advanced."""
    from pyspark.sql import functions as F

    return frame.select(F.col(quote_name(time)).alias("time")).where(F.rand() < -1).dropDuplicates(["time"])
