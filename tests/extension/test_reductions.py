"""Derived build sides with aggregates, reduced by semi-joins to the keys that another join retains, through Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkext import report
from tests.support.planned_joins import assert_like_spark, mode, plan_of
from tests.support.sessions import configured

TABLES = {
    "facts": (3_000, "id, id % 97 AS k, CAST(id % 50 AS DECIMAL(12, 2)) AS price, if(id % 9 = 0, NULL, id % 97) AS n"),
    "orders": (20_000, "id % 97 AS ok, id % 400 AS number"),
    "few": (97, "id AS fk, int(id % 13) AS w, concat('text ', id) AS t"),
}


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("reductions")
    for name, (rows, columns) in TABLES.items():
        spark.sql(f"SELECT {columns} FROM range(0, {rows}, 1, 2)").write.parquet(f"{folder}/{name}")
        spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
    yield
    for name in TABLES:
        spark.catalog.dropTempView(name)


@pytest.fixture(autouse=True)
def _forced(spark: SparkSession) -> Iterator[None]:
    with configured(
        spark, spark_sparkext_mode="auto", spark_sparkext_debug_force="true", spark_sql_ansi_enabled="false"
    ):
        yield


REDUCED_GROUPS = re.compile(r"\d into semi [^,]*, \d+ into groups: ")
FEW = "JOIN (SELECT fk, t FROM few WHERE w = 3) ON ok = fk"
TOTALS = "(SELECT k, sum(price) AS total, count(*) AS c FROM facts GROUP BY k)"
REDUCED = {
    "inner": f"SELECT number, t, total FROM orders {FEW} JOIN {TOTALS} ON ok = k",
    "the build side's key": f"SELECT number, t, total FROM orders {FEW} JOIN {TOTALS} ON fk = k",
    "left": f"SELECT number, t, total FROM orders {FEW} LEFT JOIN {TOTALS} ON ok = k",
    "semi": f"SELECT number, t FROM orders {FEW} LEFT SEMI JOIN {TOTALS} ON ok = k",
    "anti": f"SELECT number, t FROM orders {FEW} LEFT ANTI JOIN {TOTALS} ON ok = k AND number < c",
    "more keys": f"SELECT number, t, total FROM orders {FEW} JOIN {TOTALS} ON ok = k AND number = c",
    "a filter of groups": f"SELECT number, t, total FROM orders {FEW} JOIN {TOTALS} ON ok = k WHERE total > 700",
    "a renamed key": f"SELECT number, x FROM orders {FEW} JOIN (SELECT k AS j, total + 1 AS x FROM {TOTALS}) ON ok = j",
    "a key with nulls": (
        f"SELECT number, s FROM orders {FEW} JOIN (SELECT n, max(price) AS s FROM facts GROUP BY n) ON ok = n"
    ),
}


@pytest.mark.parametrize("name", REDUCED)
def test_reduced(spark: SparkSession, name: str) -> None:
    df = assert_like_spark(spark, lambda: spark.sql(REDUCED[name]))
    assert REDUCED_GROUPS.search(str(report(df))), report(df)


WHOLE = {
    "a join that drops little": f"SELECT number, total FROM orders JOIN few ON ok = fk JOIN {TOTALS} ON ok = k",
    "a join that drops nothing": (f"SELECT number, total FROM orders LEFT {FEW} JOIN {TOTALS} ON ok = k"),
    "another key": f"SELECT number, total FROM orders {FEW} JOIN {TOTALS} ON number = k",
    "a null-safe key": f"SELECT number, total FROM orders {FEW} JOIN {TOTALS} ON ok <=> k",
    "a sum that wraps around, which may be one that overflows": (
        f"SELECT number, s FROM orders {FEW} JOIN (SELECT k, sum(id) AS s FROM facts GROUP BY k) ON ok = k"
    ),
    "a column that is no group's": (
        f"SELECT number, m FROM orders {FEW} JOIN (SELECT k, max(id) AS m FROM facts GROUP BY k) ON ok = m"
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_not_reduced(spark: SparkSession, name: str) -> None:
    df = assert_like_spark(spark, lambda: spark.sql(WHOLE[name]))
    assert "into groups: " in str(report(df)) and not REDUCED_GROUPS.search(str(report(df))), report(df)


@pytest.mark.parametrize("total", ["sum(id + 9223372036854775000)", "sum(1 / (k - 5))"])
def test_groups_that_are_not_asked_for_fail_all_the_same(spark: SparkSession, total: str) -> None:
    query = f"SELECT number, s FROM orders {FEW} JOIN (SELECT k, {total} AS s FROM facts GROUP BY k) ON ok = k"

    def failure() -> str:
        with pytest.raises(PySparkException) as caught:
            spark.sql(query).collect()
        return str(caught.value.getCondition())

    with configured(spark, spark_sql_ansi_enabled="true"):
        ours = failure()
        with mode(spark, "off"):
            assert ours == failure()


def test_what_does_not_fit(spark: SparkSession) -> None:
    with configured(spark, spark_sparkext_partitioned="never", spark_sparkext_buildSide_maxBytes=40):
        df = assert_like_spark(spark, lambda: spark.sql(REDUCED["inner"].replace("price", "price + 1")))
        assert "fell back to Spark's own joins" in plan_of(df), plan_of(df)
