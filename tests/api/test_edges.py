"""Small, empty, skewed and oddly named inputs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import pipelined_join, report
from tests.api.spark_checks import (
    EXTENSION,
    KINDS,
    assert_like_spark,
    assert_pipelined,
    assert_same_rows,
    crossings_of,
    rows_of,
)
from tests.support.frames import frame
from tests.support.sessions import configured

MIB = 1 << 20


def left_of(spark: SparkSession, parts: int | None = 3) -> DataFrame:
    return frame(spark, parts=parts, k=[1, 2, 2, None, 5], v=list("abcde"))


def right_of(spark: SparkSession) -> DataFrame:
    return frame(spark, k=[2, 2, 5, None, 7], w=list("ABCDE"))


EMPTIERS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "filter false, which folds to an empty relation": lambda df: df.filter("false"),
    "limit 0": lambda df: df.limit(0),
    "a filter that nothing passes": lambda df: df.where(F.col(df.columns[1]) > "x"),
}


@pytest.mark.reduced("values", reason="four seconds each")
@pytest.mark.parametrize("aqe", ["true", "false"])
@pytest.mark.parametrize("how", EMPTIERS)
def test_an_empty_side(spark: SparkSession, how: str, aqe: str) -> None:
    """Unmatched build rows are emitted even if the optimizer folds the probe side away."""
    empty = EMPTIERS[how]
    with configured(spark, {"spark.sql.adaptive.enabled": aqe}):
        for kind in KINDS if "folds" in how and aqe == "true" else ("left", "full"):
            assert_like_spark(empty(left_of(spark)), right_of(spark), "k", kind)
            assert_like_spark(left_of(spark), empty(right_of(spark)), "k", kind)


def test_both_sides_empty(spark: SparkSession) -> None:
    for kind in KINDS:
        _, rows = assert_like_spark(left_of(spark).limit(0), right_of(spark).limit(0), "k", kind)
        assert not rows


@pytest.mark.parametrize("kind", ["left", "full"])
def test_more_partitions_than_rows(spark: SparkSession, kind: str) -> None:
    assert_like_spark(left_of(spark).repartition(40), right_of(spark).repartition(9), "k", kind)


def test_zero_payload_columns(spark: SparkSession) -> None:
    """Only the key on one side or both, and a count, which needs no column at all."""
    left, right = left_of(spark), right_of(spark)
    for kind in KINDS:
        assert_like_spark(left.select("k"), right.select("k"), "k", kind)
    counted = left.transform(pipelined_join(right.select("k"), "k"))
    assert counted.count() == left.join(right, "k").count()
    assert_same_rows(left.join(right, "k").select("k"), left.transform(pipelined_join(right, "k")).select("k"))


def test_a_probe_side_without_columns(spark: SparkSession) -> None:
    left, right = left_of(spark).select(), right_of(spark)
    crossed = left.transform(pipelined_join(right, how="cross"))
    assert_pipelined(crossed, joins=1)
    assert assert_same_rows(left.crossJoin(right), crossed).total() == 25
    crossed = right.transform(pipelined_join(left, how="cross"))
    assert assert_same_rows(right.crossJoin(left), crossed).total() == 25


def test_one_row_batches_and_one_row_budgets(spark: SparkSession) -> None:
    values = {"spark.sql.execution.arrow.maxRecordsPerBatch": 1, "spark.sparkext.morsel.maxRows": 1}
    with configured(spark, values):
        for kind in KINDS:
            assert_like_spark(left_of(spark), right_of(spark), "k", kind)


@pytest.mark.skipif(EXTENSION, reason="Catalyst makes a join on a constant key a join without one, which is declined")
def test_one_row_with_ten_million_matches(spark: SparkSession) -> None:
    """The result is emitted in parts: a worker's peak memory stays far below the 240 MB of the complete result."""
    matches = 10_000_000
    left = frame(spark, k=(pa.int64(), [7]), v=["x"])
    right = spark.range(matches).select(F.lit(7).cast("bigint").alias("k"), F.col("id").alias("w"))
    out = left.transform(pipelined_join(right, "k"))
    assert_pipelined(out, joins=1)
    out.write.format("noop").mode("overwrite").save()
    told = report(out)
    assert told.joins[0].rows_out == matches
    assert told.joins[0].budget_max is not None and told.joins[0].budget_max < matches
    many = max(task.peak_rss_bytes for task in told.tasks)
    small = left.transform(pipelined_join(right.limit(1000), "k"))
    small.write.format("noop").mode("overwrite").save()
    few = max(task.peak_rss_bytes for task in report(small).tasks)
    # ru_maxrss counts mapped pages as well: 160 MB of build columns, and the index.
    mapped = 160_000_000 + (told.joins[0].index_bytes or 0)
    assert many < few + mapped + 128 * MIB
    with configured(spark, {"spark.sql.ansi.enabled": "true"}):
        assert out.agg(F.sum("w")).first()[0] == matches * (matches - 1) // 2


@pytest.mark.parametrize("kind", ["right", "full"])
def test_a_build_side_that_never_evaluates_alike(spark: SparkSession, kind: str) -> None:
    """rand() gives other keys at each evaluation: rows must come from a single evaluation, each exactly once."""
    right = spark.range(2000).select((F.rand() * 1000).cast("int").alias("k"), F.rand().alias("w"))
    left = spark.range(500).select(F.col("id").cast("int").alias("k"), F.lit(1).alias("hit"))
    out = left.transform(pipelined_join(right, "k", kind))
    assert_pipelined(out, joins=1, crossings=2)
    first, second = rows_of(out), rows_of(out)
    assert first == second
    rows = out.where("w is not null").collect()
    assert len(rows) == len({row.w for row in rows}) == 2000
    assert all((row.hit == 1) == (row.k < 500) for row in rows)


NAMES = ["a.b", "a`b", "`a`.b", "a b", "ünï", "SELECT", 'a"b', "*", "", "a,b", "__sparkext_key_0"]


@pytest.mark.parametrize(("name", "kind"), list(zip(NAMES, cycle(("inner", "full", "semi")), strict=False)))
def test_column_names_of_any_spelling(spark: SparkSession, name: str, kind: str) -> None:
    """As a key and as payload. The oracle joins under plain names and renames the result."""
    left, right = left_of(spark), right_of(spark)
    expected = left.join(right, "k", kind)
    by_key = left.toDF(name, "v").transform(pipelined_join(right.toDF(name, "w"), [name], kind))
    assert_pipelined(by_key, joins=1, crossings=crossings_of(kind))
    assert_same_rows(expected.toDF(name, *expected.columns[1:]), by_key)
    payload = left.toDF("k", name).transform(pipelined_join(right, "k", kind))
    assert_same_rows(expected.toDF("k", name, *expected.columns[2:]), payload)
    chained = left.toDF(name, "v").transform(pipelined_join(right.toDF("r", name + "w"), [(name, "r")]))
    chained = chained.transform(pipelined_join(right.toDF("r2", "w2"), [("r", "r2")]))
    assert_pipelined(chained, joins=2)
    plain = left.join(right.toDF("r", "w"), F.col("k") == F.col("r"))
    plain = plain.join(right.toDF("r2", "w2"), F.col("r") == F.col("r2"))
    assert_same_rows(plain.toDF(name, "v", "r", name + "w", "r2", "w2"), chained)


def test_reserved_names_in_the_input(spark: SparkSession) -> None:
    """The columns that a right or full join adds for its shuffle must not collide with the user's."""
    left = left_of(spark)
    for name in ("__sparkext_key_0", "__sparkext_build_row", "__sparkext_probe_0"):
        left = left.withColumn(name, F.lit(7))
    assert_like_spark(left, right_of(spark), "k", "full")


def test_names_that_differ_in_case(spark: SparkSession) -> None:
    with configured(spark, {"spark.sql.caseSensitive": "true"}):
        left = frame(spark, k=[1, 2], K=[2, 3])
        right = frame(spark, k=[2, 3], w=[1, 2])
        for kind in KINDS:
            assert_like_spark(left, right, "k", kind)
            assert_like_spark(left, right.toDF("q", "W"), [("K", "q")], kind)
    for kind in KINDS:
        assert_like_spark(frame(spark, Key=[1, 2], v=[1, 2]), right.toDF("kEY", "w"), "KEY", kind)
