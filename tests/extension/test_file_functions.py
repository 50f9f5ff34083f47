"""`input_file_name()` and the like, and `_metadata`: allowed below pipelined joins; above joins, Spark's own must run.

Spark allows these functions if exactly one side of a join reads files.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import pipelined_join
from tests.support.planned_joins import (
    assert_declined,
    assert_like_spark,
    assert_pipelined,
    pipelines_of,
    plan_of,
    reasons_of,
)
from tests.support.sessions import configured

FILES = 3
REASON = "a function of the current file, such as input_file_name(), is used above it"
HINT = "/*+ PIPELINED_JOIN(d, e) */"
NAME = "regexp_extract(input_file_name(), '[^/]*$', 0)"


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Write files of 10 rows each, so small that a task reads several of them."""
    folder = tmp_path_factory.mktemp("files")
    for number in range(FILES):
        rows = range(10 * number, 10 * number + 10)
        pq.write_table(pa.table({"k": list(rows), "j": [row % 4 for row in rows]}), folder / f"{number}.parquet")
    spark.read.parquet(str(folder)).createOrReplaceTempView("t")
    metadata = ["_metadata.file_name AS f", "_metadata.row_index AS r"]
    spark.read.parquet(str(folder)).selectExpr("*", *metadata).createOrReplaceTempView("m")
    spark.range(0, 30, 2, 2).selectExpr("id AS dk", "id % 3 AS w").createOrReplaceTempView("d")
    spark.range(4).selectExpr("id AS ek").createOrReplaceTempView("e")
    yield str(folder)
    for view in ("t", "m", "d", "e"):
        spark.catalog.dropTempView(view)


ABOVE = {
    "a column": f"SELECT {HINT} k, w, {NAME} FROM t JOIN d ON k = dk",
    "where the block lies": (
        f"SELECT {HINT} k, input_file_block_start() AS a, input_file_block_length() AS b FROM t LEFT JOIN d ON k = dk"
    ),
    "a filter": f"SELECT {HINT} k, w FROM t JOIN d ON k = dk WHERE input_file_name() LIKE '%1.parquet'",
    "a key of groups": f"SELECT {HINT} {NAME} AS f, count(*) FROM t JOIN d ON k = dk GROUP BY 1",
    "an aggregate": f"SELECT w, max(f) FROM (SELECT {HINT} w, {NAME} AS f FROM t JOIN d ON k = dk) GROUP BY w",
    "a window": f"SELECT {HINT} k, count(*) OVER (PARTITION BY {NAME}) FROM t JOIN d ON k = dk",
    "an order": f"SELECT {HINT} k, w FROM t JOIN d ON k = dk ORDER BY {NAME}, k LIMIT 12",
    "a generator": f"SELECT {HINT} k, f FROM t JOIN d ON k = dk LATERAL VIEW explode(array({NAME})) AS f",
    "further above": f"SELECT *, {NAME} FROM (SELECT {HINT} k + 1, w FROM t JOIN d ON k = dk WHERE w > 0) LIMIT 100",
    "above a shuffle": f"SELECT *, {NAME} FROM (SELECT {HINT} w, count(*) FROM t JOIN d ON k = dk GROUP BY w)",
    "beside a union": f"SELECT k, {NAME} FROM (SELECT {HINT} k FROM t JOIN d ON k = dk UNION ALL SELECT k FROM t)",
    "a semi join": f"SELECT {HINT} k, {NAME} FROM t LEFT SEMI JOIN d ON k = dk",
    "files that are looked up": f"SELECT /*+ PIPELINED_JOIN(t) */ k, {NAME} FROM d LEFT JOIN t ON k = dk",
}


@pytest.mark.parametrize("case", ABOVE)
def test_above_a_join_it_is_sparks_own(spark: SparkSession, case: str) -> None:
    assert_declined(assert_like_spark(spark, lambda: spark.sql(ABOVE[case])), REASON)


@pytest.mark.parametrize("adaptive", [True, False])
def test_all_joins_below_are_sparks_own(spark: SparkSession, adaptive: bool) -> None:
    """Also after adaptive re-planning. Joins in another branch of the union and in a subquery stay pipelined."""
    counted = "(SELECT dk, count(*) AS n FROM d GROUP BY dk)"
    below = f"SELECT {HINT} k, n, {NAME} AS f FROM t JOIN {counted} d ON k = dk JOIN e ON j = ek"
    beside = f"SELECT {HINT} dk, n, '' AS f FROM {counted} d JOIN e ON dk = ek"
    inner = f"(SELECT {HINT} max(k) FROM t JOIN d ON k = dk)"
    with configured(spark, spark_sql_adaptive_enabled=str(adaptive).lower()):
        out = assert_like_spark(spark, lambda: spark.sql(f"{below} WHERE k <= {inner} UNION ALL {beside}"))
    assert reasons_of(out) == [REASON] * 2
    assert pipelines_of(out) == [1, 1], plan_of(out)


BELOW = {
    "of the probe side": f"SELECT {HINT} * FROM (SELECT k, {NAME} AS f FROM t) JOIN d ON k = dk",
    "of its filter": (
        f"SELECT {HINT} * FROM (SELECT k FROM t WHERE input_file_name() LIKE '%1.parquet') JOIN d ON k = dk"
    ),
    "of the build side": f"SELECT * FROM d JOIN (SELECT /*+ PIPELINED_JOIN */ k, {NAME} AS f FROM t) ON k = dk",
    "metadata": f"SELECT {HINT} k, f, r FROM m LEFT JOIN d ON k = dk",
    "metadata in a filter": f"SELECT {HINT} k, w FROM m JOIN d ON k = dk WHERE f = '1.parquet' AND r < w + 5",
    "metadata as a key": f"SELECT {HINT} k, w FROM m JOIN d ON r = dk",
    "metadata of the build side": "SELECT /*+ PIPELINED_JOIN(m) */ k, f, r FROM d LEFT JOIN m ON k = dk",
}


@pytest.mark.parametrize("case", BELOW)
def test_below_a_join_it_is_a_column_like_others(spark: SparkSession, case: str) -> None:
    out = assert_like_spark(spark, lambda: spark.sql(BELOW[case]))
    assert_pipelined(out, 1)
    if "metadata" not in case:
        assert len({row.f for row in out.collect() if "f" in row}) in (0, FILES)


def test_an_as_of_join(spark: SparkSession) -> None:
    """An as-of join is replaced before Spark's optimizer sees it, so that it has to be declined earlier as well."""
    left, right = spark.table("t"), spark.table("d").hint("pipelined_join")

    def joined(probe: DataFrame) -> DataFrame:
        return probe._joinAsOf(right, leftAsOfColumn="k", rightAsOfColumn="dk", how="left")

    named = joined(left).withColumn("f", F.expr(NAME))
    before = assert_like_spark(spark, lambda: joined(left).withColumn("f", F.expr(NAME)))
    assert pipelines_of(before) == [] and REASON in reasons_of(named)
    assert_pipelined(assert_like_spark(spark, lambda: joined(left.withColumn("f", F.expr(NAME)))), 1)


def test_below_a_transform(spark: SparkSession) -> None:
    with configured(spark, spark_sparkext_mode="off"):
        left = spark.table("t").withColumn("f", F.expr(NAME))
        out = left.transform(pipelined_join(spark.table("d"), on=[("k", "dk")]))
        assert "mapInArrow" in plan_of(out) or "MapInArrow" in plan_of(out)
        assert {(row.k, row.f) for row in out.collect()} == {(k, f"{k // 10}.parquet") for k in range(0, 30, 2)}
