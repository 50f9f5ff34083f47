"""Aggregates that workers complete before a pipeline reads them: below joins, nested, and ordered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import sparkext
from tests.support.planned_joins import assert_like_spark, mode, plan_of, reasons_of
from tests.support.sessions import configured

FACTS = (
    "id, id % 97 AS k, if(id % 11 = 0, NULL, int(id % 7)) AS g, CAST(id % 50 AS DECIMAL(12, 2)) AS price,"
    " concat('text ', id % 5) AS t"
)
NAMES = "id AS nk, concat('name ', id % 10) AS name"


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("whole")
    for name, rows, columns in (("facts", 3_000, FACTS), ("names", 60, NAMES), ("none", 0, FACTS)):
        spark.sql(f"SELECT {columns} FROM range(0, {rows}, 1, 2)").write.parquet(f"{folder}/{name}")
        spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
    yield
    for name in ("facts", "names", "none"):
        spark.catalog.dropTempView(name)


@pytest.fixture(autouse=True)
def _whole(spark: SparkSession) -> Iterator[None]:
    with configured(
        spark, spark_sparkext_mode="auto", spark_sparkext_debug_force="true", spark_sparkext_debug_groups="whole"
    ):
        yield


def sources(df: DataFrame) -> int:
    """Return the number of pipelines in a plan that read rows which workers have derived."""
    return len(re.findall(r"Pipelined(?:Join|Aggregate) \[.*\] scan=derived by a separate pipeline", plan_of(df)))


TOTALS = "(SELECT k, sum(price) AS total, avg(price) AS mean, count(*) AS n FROM facts GROUP BY k)"
QUERIES = {
    "alone": (f"SELECT * FROM {TOTALS}", 1),
    "a filter above": (f"SELECT k, total FROM {TOTALS} WHERE total > 700 AND n < 31", 1),
    "computed columns": (f"SELECT k + 1 AS more, 2 * total AS twice, n % 2 FROM {TOTALS}", 1),
    "what only Spark computes": (f"SELECT reverse(concat('k', k)), total FROM {TOTALS}", 0),
    "a join": (f"SELECT name, total FROM {TOTALS} JOIN names ON k = nk", 1),
    "a join of a filter": (f"SELECT name, total FROM {TOTALS} LEFT JOIN names ON k = nk WHERE total > 700", 1),
    "a join of computed columns": (
        f"SELECT name, h FROM (SELECT k, total / 2 AS h FROM {TOTALS}) JOIN names ON k = nk AND h > 300",
        1,
    ),
    "a semi join": (f"SELECT k, mean FROM {TOTALS} WHERE k IN (SELECT nk FROM names)", 1),
    "groups of groups": (f"SELECT n, count(*), max(total) FROM {TOTALS} GROUP BY n", 1),
    "groups of a join of groups": (f"SELECT name, sum(total) FROM {TOTALS} JOIN names ON k = nk GROUP BY name", 1),
    "one group of groups": (f"SELECT max(total), min(mean) FROM {TOTALS}", 1),
    "a chain below": (
        "SELECT * FROM (SELECT name, sum(price) AS total FROM facts JOIN names ON k = nk GROUP BY name)",
        1,
    ),
    "a subquery": (f"WITH t AS {TOTALS} SELECT k FROM t WHERE total = (SELECT max(total) FROM t)", 2),
    "nulls": ("SELECT g, t, sum(price), count(g) FROM facts GROUP BY g, t", 1),
    "no rows": ("SELECT k, sum(price) FROM none GROUP BY k", 1),
    "no rows and no keys": ("SELECT sum(price), count(*) FROM none", 1),
    "one group": ("SELECT sum(price), count(*), max(t) FROM facts", 1),
    "distinct": ("SELECT DISTINCT t, g FROM facts", 1),
    "a union": (f"SELECT k, n FROM {TOTALS} UNION ALL SELECT k, n FROM {TOTALS} WHERE n > 30", 2),
    "sorted": (f"SELECT k, total FROM {TOTALS} ORDER BY total, k", 1),
    "first rows": (f"SELECT k, total FROM {TOTALS} ORDER BY total DESC, k LIMIT 7", 1),
}


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("name", QUERIES)
def test_like_spark(spark: SparkSession, name: str, adaptive: str) -> None:
    query, count = QUERIES[name]
    with configured(spark, spark_sql_adaptive_enabled=adaptive):
        df = assert_like_spark(spark, lambda: spark.sql(query))
        assert sources(df) == count, plan_of(df)


def test_first_rows_are_kept_by_tasks(spark: SparkSession) -> None:
    df = spark.sql(QUERIES["first rows"][0])
    assert re.search(r"of whole groups top=7 by", plan_of(df)), plan_of(df)
    assert len(df.collect()) == 7
    assert sparkext.report(df).joins[-1].rows_out == 7
    assert len(sparkext.report(df).tasks) == 1  # one task reads all groups: after recomputation, their order may differ


def test_budgets_of_few_rows(spark: SparkSession) -> None:
    with configured(spark, spark_sparkext_morsel_maxRows=7, spark_sparkext_morsel_minRows=1):
        df = assert_like_spark(spark, lambda: spark.sql("SELECT id, count(*) FROM facts WHERE id < 500 GROUP BY id"))
        assert sources(df) == 1


def test_keys_that_collide(spark: SparkSession) -> None:
    with configured(spark, spark_sparkext_debug_hashMask=0):
        assert_like_spark(spark, lambda: spark.sql(QUERIES["nulls"][0]))


def test_what_does_not_fit(spark: SparkSession) -> None:
    """Spark's own aggregate runs, below Spark's own joins or alone."""
    for query in (QUERIES["alone"][0], QUERIES["a join"][0], QUERIES["groups of groups"][0]):
        with configured(spark, spark_sparkext_partitioned="never", spark_sparkext_buildSide_maxBytes=100):
            df = assert_like_spark(spark, lambda query=query: spark.sql(query.replace("price", "price + 1")))
            assert "the rows that workers derive cannot be used" in " ".join(reasons_of(df)), reasons_of(df)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, sum(id + 9223372036854775000) FROM facts GROUP BY k",
        "SELECT k, sum(CAST(9e37 AS DECIMAL(38, 0)) + id) FROM facts GROUP BY k",
        "SELECT k, 1 / (count(*) - 31) FROM facts GROUP BY k",
        "SELECT name, q FROM (SELECT k, sum(price / (k - 3)) AS q FROM facts GROUP BY k) JOIN names ON k = nk",
    ],
)
def test_what_fails_fails_as_in_spark(spark: SparkSession, query: str) -> None:
    def failure() -> str:
        with pytest.raises(PySparkException) as caught:
            spark.sql(query).collect()
        return str(caught.value.getCondition())

    with configured(spark, spark_sql_ansi_enabled="true"):
        assert sources(spark.sql(query)) == 1
        ours = failure()
        with mode(spark, "off"):
            assert ours == failure()


def test_a_file_that_changes_makes_other_groups(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "changing")
    for rows in (100, 150):
        spark.range(rows).selectExpr("id % 10 AS k").coalesce(1).write.mode("overwrite").parquet(path)
        found = spark.read.parquet(path).groupBy("k").count()
        assert sources(found) == 1
        assert {row["count"] for row in found.collect()} == {rows // 10}


def test_the_report_tells_what_made_the_rows(spark: SparkSession) -> None:
    df = spark.sql("SELECT t, min(id) FROM facts GROUP BY t")
    df.collect()
    assert "probe side: 3,000 into groups: 5 rows in " in str(sparkext.report(df))
    assert not sparkext.report(df).notes


def test_few_groups_go_to_spark_in_parts(spark: SparkSession, tmp_path: Path) -> None:
    """By default, workers complete an aggregate if a grouping column's range in the files permits 10,000 groups."""
    spark.range(20_000).selectExpr("id", "id % 9999 AS less", "concat('t', id) AS t").write.parquet(f"{tmp_path}/many")
    many = spark.read.parquet(f"{tmp_path}/many")
    with configured(spark, spark_sparkext_debug_groups="auto"):
        assert sources(many.groupBy("id").count()) == 1
        assert sources(many.withColumnRenamed("id", "other").groupBy("t", "other").count()) == 1
        for few in (
            many.groupBy("less").count(),
            many.groupBy("t").count(),
            many.where("id = 7").groupBy("id").count(),
        ):
            assert sources(few) == 0 and "groups=" in plan_of(few), plan_of(few)
    with configured(spark, spark_sparkext_debug_groups="parts"):
        assert sources(many.groupBy("id").count()) == 0
