"""Helpers of the tests on table formats: tables of every type, joins with them, and checks of who reads them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.lakes.formats import Lake
from tests.support.planned_joins import assert_like_spark, plan_of, scans_of
from tests.support.sessions import configured

ROWS = 300
_numbers = count()


def facts(spark: SparkSession, first: int = 0, rows: int = ROWS) -> DataFrame:
    """Return every type that workers read from files, with nulls."""
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
    """Write a table, and return its SQL name. Deleting rows from it does not rewrite its files."""
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
    """Return a join with the table as its probe side."""
    return table().join(dims.hint("pipelined_join"), F.expr("k = dk"), how)


def indexed(dims: DataFrame, table: Callable[[], DataFrame]) -> DataFrame:
    """Return a join with the table as its build side."""
    return dims.join(table().hint("pipelined_join"), F.expr("k = dk"), "left")


def assert_fused(spark: SparkSession, dims: DataFrame, table: Callable[[], DataFrame], told: str = "") -> DataFrame:
    """Assert that workers read the table on either side of a join, and that the rows equal Spark's."""
    df = assert_like_spark(spark, lambda: joined(dims, table))
    ((builds, fused, said),) = scans_of(df)
    assert (builds, fused) == (1, True) and told in said, plan_of(df)
    other = assert_like_spark(spark, lambda: indexed(dims, table))
    ((builds, fused, _),) = scans_of(other)
    assert (builds, fused) == (1, True), plan_of(other)
    return df


def assert_read_by_spark(spark: SparkSession, dims: DataFrame, table: Callable[[], DataFrame], reason: str) -> None:
    """Assert that Spark reads the table for the pipeline, and that the plan has this reason."""
    df = assert_like_spark(spark, lambda: joined(dims, table))
    ((_, fused, said),) = scans_of(df)
    assert not fused and reason in said, plan_of(df)


def forced(spark: SparkSession) -> AbstractContextManager[None]:
    """Plan every eligible join and aggregate as a pipeline."""
    return configured(spark, spark_sparkext_mode="auto", spark_sparkext_debug_force="true")


def executed(spark: SparkSession, after: int = -1) -> dict[int, str]:
    """Return the plans that this session has executed after the given execution id, by id. Spark drops the oldest."""
    store = spark._jsparkSession.sharedState().statusStore()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    executions = store.executionsList()
    all_of_them = map(executions.apply, range(executions.size()))
    return {one.executionId(): one.physicalPlanDescription() for one in all_of_them if one.executionId() > after}
