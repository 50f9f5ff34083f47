"""Rows that the JVM sends to workers: in batches of limited size, for partitions of any size."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkext
from tests.support.planned_joins import assert_like_spark, assert_pipelined, plan_of
from tests.support.sessions import configured


def joined(spark: SparkSession, probe: DataFrame, how: str = "inner") -> DataFrame:
    """Join rows that Spark computes, all in one partition, by `k`."""
    build = spark.range(4).selectExpr("id AS dk", "concat('d', id) AS name").hint("pipelined_join")
    return probe.join(build, F.col("k") == F.col("dk"), how)


def batches_in(df: DataFrame) -> int:
    """Return the number of batches that the only task of the pipeline received."""
    assert "scan=rows from Spark" in plan_of(df)
    (task,) = sparkext.report(df).tasks
    return task.batches_in


@pytest.mark.parametrize(("rows", "batches"), [(1, 1), (16_384, 1), (16_385, 2), (81_921, 3), (300_000, 4)])
def test_rows_cross_in_batches(spark: SparkSession, rows: int, batches: int) -> None:
    """The first batches are small: 16,384 rows, then 65,536, then as many as a morsel has."""
    df = joined(spark, spark.range(0, rows, 1, 1).selectExpr("id", "id % 5 AS k"))
    assert df.groupBy("name").count().count() == min(rows, 4)
    df.collect()
    assert_pipelined(df, 1)
    assert batches_in(df) == batches


@pytest.mark.parametrize(("most", "rows", "batches"), [(5_000, 20_000, 4), (262_144, 400_000, 4)])
def test_no_batch_has_more_rows_than_a_morsel(spark: SparkSession, most: int, rows: int, batches: int) -> None:
    """Workers would have to divide larger batches, and to copy smaller ones together."""
    with configured(spark, spark_sparkext_morsel_maxRows=most):
        df = joined(spark, spark.range(0, rows, 1, 1).selectExpr("id", "id % 5 AS k"))
        df.write.format("noop").mode("overwrite").save()
        assert_pipelined(df, 1)
        assert batches_in(df) == batches


def test_no_batch_is_larger_than_its_bytes(spark: SparkSession) -> None:
    """Except for its last rows. The larger the rows are, the more often their size is checked."""
    wide = spark.range(0, 3000, 1, 1).selectExpr("id % 5 AS k", "repeat('x', int(100 * (1 + id))) AS text")
    df = joined(spark, wide)
    assert df.agg(F.sum(F.length("text"))).first()[0] == sum(100 * (1 + n) for n in range(3000) if n % 5 < 4)
    df.write.format("noop").mode("overwrite").save()
    size = sum(100 * (1 + n) for n in range(3000))
    assert size / (20 << 20) < batches_in(df) < size / (12 << 20)


def test_rows_that_become_larger_all_at_once(spark: SparkSession) -> None:
    """The first row is small; a check only after thousands of such rows would be too late."""
    text = F.expr("repeat('x', IF(id = 0, 10, 1000000))")
    df = joined(spark, spark.range(0, 200, 1, 1).select("id", (F.col("id") % 4).alias("k"), text.alias("text")))
    df.write.format("noop").mode("overwrite").save()
    assert 200 / 20 < batches_in(df) < 200 / 14


@pytest.mark.parametrize("how", ["left", "full"])
def test_the_rows_of_many_batches(spark: SparkSession, how: str) -> None:
    probe = spark.range(0, 100_000, 1, 1).selectExpr("id", "CASE WHEN id % 3 < 2 THEN id % 7 END AS k")
    assert_pipelined(assert_like_spark(spark, lambda: joined(spark, probe, how)), 1)


def test_a_limit_takes_no_more_than_it_needs(spark: SparkSession) -> None:
    """The partition would not fit into memory. Buffers in transit are released."""
    allocator = spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()  # type: ignore[union-attr]
    before = allocator.getAllocatedMemory()
    df = joined(spark, spark.range(0, 10**12, 1, 1).selectExpr("id % 5 AS k"))
    assert len(df.limit(3).collect()) == 3
    assert allocator.getAllocatedMemory() == before
