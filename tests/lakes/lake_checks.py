"""What the tests on lakes share: tables of every type, joins with them, and who reads them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.extension.extension_checks import assert_like_spark, configured, plan_of, scans_of
from tests.lakes.formats import Lake

ROWS = 300
_numbers = count()


def facts(spark: SparkSession, first: int = 0, rows: int = ROWS) -> DataFrame:
    """Every type that is read from files, with nulls."""
    n = F.col("id")

    def some(column: Any, name: str, every: int) -> Any:
        return F.when(n % every != 1, column).alias(name)

    return spark.range(first, first + rows).select(
        "id",
        some((n % 40).cast("int"), "k", 11),
        some(n / 3, "f8", 4),
        some((n / 7).cast("float"), "f4", 4),
        some(n % 2 == 0, "flag", 3),
        some(F.concat(F.lit("wörter "), n % 50), "s", 8),
        some(F.encode(F.concat(F.lit("b"), n % 50), "utf-8"), "bin", 9),
        some((n - 150).cast("decimal(9,2)"), "d9", 5),
        some((n * 1_000_003).cast("decimal(18,4)"), "d18", 5),
        some((n * 1_000_003).cast("decimal(30,6)"), "d30", 5),
        some(F.date_add(F.lit("1950-01-01").cast("date"), (n * 97).cast("int")), "day", 6),
        some(F.timestamp_seconds(n * 9_999_991 - 900_000_000), "at", 6),
        some(F.timestamp_seconds(n * 9_999_991 - 900_000_000).cast("timestamp_ntz"), "local", 6),
    )


def create(
    lake: Lake, spark: SparkSession, df: DataFrame, *, partitioned: str = "", files: int = 2, **properties: str
) -> str:
    """Write a table, and return its name in SQL. Rows of it are deleted without writing their files anew."""
    table = lake.table(f"t{next(_numbers)}")
    df.createOrReplaceTempView("given")
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in df.schema)
    told = {**lake.properties, **{key.replace("_", "."): value for key, value in properties.items()}}
    listed = ", ".join(f"'{key}'='{value}'" for key, value in told.items())
    by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
    spark.sql(f"CREATE TABLE {table} ({columns}) USING {lake.name} {by} TBLPROPERTIES ({listed})")
    df.repartition(files).writeTo(table).append()
    return table


def joined(dims: DataFrame, table: Callable[[], DataFrame], how: str = "inner") -> DataFrame:
    """The table as the probe side."""
    return table().join(dims.hint("pipelined_join"), F.expr("k = dk"), how)


def indexed(dims: DataFrame, table: Callable[[], DataFrame]) -> DataFrame:
    """The table as the build side."""
    return dims.join(table().hint("pipelined_join"), F.expr("k = dk"), "left")


def assert_fused(spark: SparkSession, dims: DataFrame, table: Callable[[], DataFrame], told: str = "") -> DataFrame:
    """Prove that workers read the table as either side of a join, and that the rows are Spark's."""
    df = assert_like_spark(spark, lambda: joined(dims, table))
    ((builds, fused, said),) = scans_of(df)
    assert (builds, fused) == (1, True) and told in said, plan_of(df)
    other = assert_like_spark(spark, lambda: indexed(dims, table))
    ((builds, fused, _),) = scans_of(other)
    assert (builds, fused) == (1, True), plan_of(other)
    return df


def assert_read_by_spark(spark: SparkSession, dims: DataFrame, table: Callable[[], DataFrame], reason: str) -> None:
    """Prove that Spark reads the table for the pipeline, and that the plan says why."""
    df = assert_like_spark(spark, lambda: joined(dims, table))
    ((_, fused, said),) = scans_of(df)
    assert not fused and reason in said, plan_of(df)


def forced(spark: SparkSession) -> AbstractContextManager[None]:
    """Have every join and aggregate planned as a pipeline that can be."""
    return configured(spark, spark_sparkext_mode="auto", spark_sparkext_debug_force="true")


def executed(spark: SparkSession, after: int = -1) -> dict[int, str]:
    """The plans of what has run in this session after a number, by number. Spark forgets the oldest."""
    store = spark._jsparkSession.sharedState().statusStore()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    executions = store.executionsList()
    all_of_them = map(executions.apply, range(executions.size()))
    return {one.executionId(): one.physicalPlanDescription() for one in all_of_them if one.executionId() > after}
