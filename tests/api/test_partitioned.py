"""Partitioned joins: additions to the shared suite, which runs joins partitioned as well."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import pipelined_join, report
from sparkext.errors import BuildSideTooLargeError, InvalidJoinError
from sparkext.joins.lineage import find_lineage
from sparkext.spark.partition_keys import find_partition_keys
from tests.api.spark_checks import (
    EXTENSION,
    KINDS,
    assert_partitioned,
    assert_pipelined,
    assert_same_rows,
    physical_plan,
)
from tests.support.frames import frame
from tests.support.sessions import configured

pytestmark = pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Spark does not limit the bytes of a batch")

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture(scope="module")
def sides(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Keys that are null, repeated on both sides, or on one side only; a hot key; a string and a list as payload."""
    left = spark.range(0, 4000, 1, 3).select(
        F.expr("if(id % 9 = 0, null, if(id % 4 = 0, 1, id % 700))").alias("k"),
        F.col("id").alias("v"),
        F.expr("if(id % 5 = 0, null, array(id, null))").alias("l"),
    )
    right = spark.range(0, 900, 1, 2).select(
        F.expr("if(id % 10 = 0, null, id % 800)").alias("k"), F.expr("concat('text ', id)").alias("w")
    )
    return left.cache(), right.cache()


def partitions_of(df: DataFrame) -> int:
    plan = physical_plan(df)
    [count] = re.findall(r"Exchange hashpartitioning\(partition#\d+, (\d+)\)", plan) or re.findall(
        "SinglePartition", plan
    )
    return int(count) if count.isdigit() else 1


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("partitions", [1, 2, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_partitions(spark: SparkSession, sides: tuple[DataFrame, DataFrame], kind: str, partitions: int) -> None:
    left, right = sides
    with configured(spark, {SHUFFLE_PARTITIONS: partitions}):
        out = left.transform(pipelined_join(right, "k", kind, partitioned=True))
        assert_partitioned(out, joins=1)
        assert partitions_of(out) == partitions
        assert_same_rows(left.join(right, "k", kind), out)


@pytest.mark.parametrize("aqe", [False, True])
@pytest.mark.parametrize("kind", ["inner", "full"])
def test_hostile_settings(spark: SparkSession, sides: tuple[DataFrame, DataFrame], kind: str, aqe: bool) -> None:
    """All keys in one bucket, one-row budgets, batches of three rows, adaptive execution."""
    left, right = sides
    hostile = {
        "spark.sparkext.debug.hashMask": "0",
        "spark.sparkext.morsel.maxRows": "1",
        "spark.sparkext.morsel.minRows": "1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
        "spark.sql.adaptive.enabled": str(aqe).lower(),
        SHUFFLE_PARTITIONS: "3",
    }
    left, right = left.limit(300), right.limit(300)
    left, right = left.cache(), right.cache()
    with configured(spark, hostile):
        out = left.transform(pipelined_join(right, "k", kind, partitioned=True))
        assert_partitioned(out)
        assert_same_rows(left.join(right, "k", kind), out)


@pytest.mark.parametrize("left_rows", [0, 1])
@pytest.mark.parametrize("right_rows", [0, 1])
def test_hardly_any_rows(sides: tuple[DataFrame, DataFrame], left_rows: int, right_rows: int) -> None:
    left, right = (side.where("k = 3").limit(rows) for side, rows in zip(sides, (left_rows, right_rows), strict=True))
    for kind in KINDS:
        assert_same_rows(
            left.join(right, "k", kind), left.transform(pipelined_join(right, "k", kind, partitioned=True))
        )


def test_later_joins_ride_along(spark: SparkSession, sides: tuple[DataFrame, DataFrame]) -> None:
    """Small build sides are replicated, in the pipeline of the partitions. A join before them ends its own pipeline."""
    left, right = sides
    small = frame(spark, k=[1, 2, 3, None], x=["a", "b", "c", "d"])
    other = frame(spark, v=[1, 2, 3, 4], y=[10, 20, 30, 40])
    out = left.transform(pipelined_join(right, "k", partitioned=True)).transform(pipelined_join(small, "k", "left"))
    if not EXTENSION:
        assert_partitioned(out, joins=2)
    assert_same_rows(left.join(right, "k").join(small, "k", "left"), out)
    before = left.transform(pipelined_join(other, "v")).transform(pipelined_join(right, "k", partitioned=True))
    assert find_lineage(before) is not None and len(find_lineage(before).spec.joins) == 1  # type: ignore[union-attr]
    assert_same_rows(left.join(other, "v").join(right, "k"), before)
    twice = out.transform(pipelined_join(right.withColumnRenamed("w", "z"), "k", partitioned=True))
    assert_same_rows(left.join(right, "k").join(small, "k", "left").join(right.toDF("k", "z"), "k"), twice)


def test_local_build_sides(sides: tuple[DataFrame, DataFrame]) -> None:
    left, _ = sides
    table = pa.table({"k": pa.array([1, 2, 3, None, 3]), "w": list("abcde")})
    for other in (table, table.to_pandas(types_mapper=None).dropna().astype({"k": "int64"})):
        out = left.transform(pipelined_join(other, "k", partitioned=True))
        assert_partitioned(out, joins=1)
        assert_same_rows(left.join(left.sparkSession.createDataFrame(other), "k"), out)


def test_a_build_side_over_its_limit(spark: SparkSession, sides: tuple[DataFrame, DataFrame]) -> None:
    """It is partitioned, unless that is disabled, or there is no equality."""
    left, right = sides
    with configured(spark, {"spark.sparkext.mode": "off"}):
        out = left.transform(pipelined_join(right, "k", max_build_bytes=100))
        assert_partitioned(out, joins=1)
        assert_same_rows(left.join(right, "k"), out)
        for options in ({"partitioned": False}, {}):
            with (
                configured(spark, {} if options else {"spark.sparkext.partitioned": "never"}),
                pytest.raises(BuildSideTooLargeError, match="the limit is 100"),
            ):
                left.transform(pipelined_join(right, "k", max_build_bytes=100, **options))
        with pytest.raises(BuildSideTooLargeError, match="the limit is 100"):
            left.transform(pipelined_join(right.toDF("rk", "w"), how="cross", max_build_bytes=100))


def test_always(spark: SparkSession, sides: tuple[DataFrame, DataFrame]) -> None:
    """A join without an equality runs as without the setting."""
    left, right = sides
    with configured(spark, {"spark.sparkext.partitioned": "always"}):
        assert_partitioned(left.transform(pipelined_join(right, "k")))
        small = right.toDF("rk", "w").limit(3)
        for on, how in (([("v", "<", "rk")], "inner"), (None, "cross")):
            assert_pipelined(left.transform(pipelined_join(small, on, how)))
        by_call = left.transform(pipelined_join(right, "k", partitioned=False))
        assert "Exchange hashpartitioning(partition" not in physical_plan(by_call)


@pytest.mark.parametrize(
    ("on", "how", "told"),
    [
        (None, "cross", "partitioned=True needs an equality of the two sides"),
        ([("v", "<", "rk")], "inner", "partitioned=True needs an equality of the two sides"),
        ("nothing", "inner", "left column 'nothing' does not exist"),
    ],
)
def test_what_cannot_be_partitioned(sides: tuple[DataFrame, DataFrame], on: Any, how: str, told: str) -> None:
    left, right = sides
    with pytest.raises(InvalidJoinError, match=told):
        left.transform(pipelined_join(right.toDF("rk", "w"), on, how, partitioned=True))


def test_the_report_is_that_of_the_partitions(sides: tuple[DataFrame, DataFrame]) -> None:
    left, right = sides
    out = left.transform(pipelined_join(right, "k", partitioned=True))
    rows = out.count()
    join, _ = report(out).joins
    assert join.rows_out == rows
    assert join.build_rows == right.where("k IS NOT NULL").count()
    assert sum(task.indexes[0]["build_rows"] > 0 for task in report(out).tasks) > 1


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 200, 20_000])
def test_partition_keys_lead_to_their_partitions(spark: SparkSession, partitions: int) -> None:
    keys = find_partition_keys(partitions)
    assert len({*keys}) == partitions
    rows = frame(spark, partition=list(range(partitions)), key=(pa.int32(), list(keys)))
    assert not rows.where(F.expr(f"pmod(hash(key), {partitions}) <> partition")).count()
