"""Derived build sides ("own pipelines" in the code): workers run chains and complete aggregates like Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import sparkext
from tests.support.planned_joins import assert_like_spark, mode, plan_of, reasons_of, without_names
from tests.support.sessions import configured

TABLES = {
    "facts": "id, id % 97 AS k, if(id % 11 = 0, NULL, int(id % 7)) AS g, CAST(id % 50 AS DECIMAL(12, 2)) AS price",
    "orders": "id % 97 AS ok, id % 13 AS customer, concat('order ', id % 5) AS kind, id AS number",
    "customers": "id AS ck, concat('name ', id) AS name, int(id % 3) AS nation",
    "nations": "int(id) AS nk, concat('nation ', id) AS nation_name",
}
ROWS = {"facts": 3_000, "orders": 150, "customers": 13, "nations": 3}


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("own")
    for name, columns in TABLES.items():
        spark.sql(f"SELECT {columns} FROM range(0, {ROWS[name]}, 1, 2)").write.parquet(f"{folder}/{name}")
        spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
    yield
    for name in TABLES:
        spark.catalog.dropTempView(name)


@pytest.fixture(autouse=True)
def _forced(spark: SparkSession) -> Iterator[None]:
    with configured(spark, spark_sparkext_mode="auto", spark_sparkext_debug_force="true"):
        yield


def made(df: DataFrame) -> int:
    """Return the number of derived build sides in a plan."""
    return plan_of(df).count(" (pipelined)")


CHAINS = {
    "chain": (
        "SELECT id, name FROM facts JOIN (SELECT ok, name FROM orders JOIN customers ON customer = ck) ON k = ok",
        1,
    ),
    "bushy": (
        "SELECT id, name, nation_name FROM facts JOIN (SELECT ok, name, nation_name FROM orders JOIN"
        " (SELECT * FROM customers JOIN nations ON nation = nk) ON customer = ck WHERE kind <> 'order 2') ON k = ok",
        2,
    ),
    "left": (
        "SELECT id, n FROM facts LEFT JOIN (SELECT ok, number + length(name) AS n FROM orders LEFT JOIN customers"
        " ON customer = ck) ON k = ok AND g = n % 7",
        1,
    ),
    "semi": (
        "SELECT id FROM facts LEFT SEMI JOIN (SELECT ok FROM orders JOIN customers ON customer = ck) ON k = ok",
        1,
    ),
    "anti": (
        "SELECT id FROM facts LEFT ANTI JOIN (SELECT ok FROM orders JOIN customers ON customer = ck AND ck > 7)"
        " ON k = ok",
        1,
    ),
    "groups": (
        "SELECT id, total, mean FROM facts JOIN (SELECT ok, sum(number) AS total, avg(number) * 2 AS mean FROM orders"
        " GROUP BY ok HAVING sum(number) > 90) ON k = ok",
        1,
    ),
    "decimals": (
        "SELECT id FROM facts JOIN (SELECT g AS gg, 0.2 * avg(price) AS least, sum(price) AS total FROM facts"
        " GROUP BY g) ON g <=> gg WHERE price < least OR price = total",
        1,
    ),
    "groups of a chain": (
        "SELECT id, n FROM facts JOIN (SELECT ok, count(name) AS n, max(name) AS last FROM orders JOIN customers"
        " ON customer = ck GROUP BY ok) ON k = ok AND last > 'name 11'",
        1,
    ),
    "twice": (
        "WITH t AS (SELECT g AS gg, sum(price) AS total FROM facts GROUP BY g)"
        " SELECT id, a.total FROM facts JOIN t a ON g = a.gg JOIN t b ON id % 7 = b.gg WHERE a.total <= b.total",
        2,
    ),
    "distinct": ("SELECT id FROM facts JOIN (SELECT DISTINCT customer FROM orders) ON g = customer", 1),
    "an empty side": (
        "SELECT id, n FROM facts JOIN (SELECT ok, count(*) AS n FROM orders WHERE number < 0 GROUP BY ok) ON k = ok",
        1,
    ),
    "moments": (
        "SELECT id, s FROM facts JOIN (SELECT ok, stddev(number % 4) AS s, var_pop(number % 4) AS p FROM orders"
        " GROUP BY ok) ON k = ok WHERE p IS NOT NULL",
        1,
    ),
}


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("name", CHAINS)
def test_made_by_workers(spark: SparkSession, name: str, adaptive: str) -> None:
    query, count = CHAINS[name]
    with configured(spark, spark_sql_adaptive_enabled=adaptive):
        df = assert_like_spark(spark, lambda: spark.sql(query))
        assert made(df) == count, plan_of(df)


SPARKS = {
    "a full outer join": (
        "SELECT id FROM facts JOIN (SELECT coalesce(ok, ck) AS c FROM orders FULL JOIN customers ON customer = ck)"
        " ON k = c",
        "a partitioned join",
    ),
    "rows of Spark": (
        "SELECT id FROM facts JOIN (SELECT ok FROM orders JOIN range(13) ON customer = id) o ON k = ok",
        "its build side 1: not a scan of files",
    ),
    "what only Spark computes": (
        "SELECT facts.id, h FROM facts JOIN (SELECT ok, reverse(concat(kind, name)) AS h FROM orders JOIN customers"
        " ON customer = ck) ON k = ok",
        "an expression that only Spark evaluates: reverse",
    ),
}


@pytest.mark.parametrize("name", SPARKS)
def test_left_to_spark(spark: SparkSession, name: str) -> None:
    query, reason = SPARKS[name]
    with configured(spark, spark_sql_adaptive_enabled="false"):
        df = assert_like_spark(spark, lambda: spark.sql(query))
        assert made(df) == 0, plan_of(df)
        told = df._jdf.queryExecution().explainString(
            spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")  # type: ignore[union-attr]
        )
        assert reason in without_names(told), told


def test_what_does_not_fit(spark: SparkSession) -> None:
    query = CHAINS["groups of a chain"][0].replace("count(name)", "count(concat(name, 'x'))")  # no index cached yet
    with configured(spark, spark_sparkext_partitioned="never", spark_sparkext_buildSide_maxBytes=100):
        df = assert_like_spark(spark, lambda: spark.sql(query))
        assert "the build side does not fit" in " ".join(reasons_of(df)), reasons_of(df)


def test_the_same_rows_are_made_once(spark: SparkSession) -> None:
    df = spark.sql(CHAINS["chain"][0])
    df.collect()
    spark.sql(CHAINS["chain"][0].replace("name", "name AS other", 1)).collect()
    again = spark.sql(CHAINS["chain"][0])
    again.collect()
    report = sparkext.report(again)
    assert [task.indexes[0]["reused"] for task in report.tasks] == [True] * len(report.tasks)
    told = "150 into inner orders.customer = customers.ck, 150 into rows: 150 rows in "
    assert told in str(report)
    assert not report.notes  # the deriving pipeline is not reported as a second one


@pytest.mark.parametrize(
    "build",
    [
        "SELECT ok, 1 / (number - 7) AS q FROM orders JOIN customers ON customer = ck",
        "SELECT ok, sum(number + 9223372036854775800) AS q FROM orders GROUP BY ok",
        "SELECT ok, 1 div (count(*) - 1) AS q FROM orders WHERE number < 1 GROUP BY ok",
        "SELECT ok, sum(CAST(9e37 AS DECIMAL(38, 0)) + number) AS q FROM orders WHERE ok < 50 GROUP BY ok",
        # The mean of a single row overflows: a different error, if that row's group comes first.
        "SELECT ok, avg(CAST(9e37 AS DECIMAL(38, 0)) + number) AS q FROM orders WHERE ok < 50 GROUP BY ok",
    ],
)
def test_what_fails_fails_as_in_spark(spark: SparkSession, build: str) -> None:
    """The error is Spark's own, whether workers or Spark derive the build side."""

    def failure() -> str:
        with pytest.raises(PySparkException) as caught:
            spark.sql(f"SELECT id, q FROM facts JOIN ({build}) ON k = ok").collect()
        return str(caught.value.getCondition())

    with configured(spark, spark_sql_ansi_enabled="true"):
        ours = failure()
        with mode(spark, "off"):
            assert ours == failure()


def test_null_where_spark_has_null(spark: SparkSession) -> None:
    builds = "sum(CAST(9e37 AS DECIMAL(38, 0)) + number) AS s, avg(CAST(9e37 AS DECIMAL(38, 0)) + number) AS m"
    query = f"SELECT id, s, m FROM facts JOIN (SELECT ok, {builds} FROM orders GROUP BY ok) ON k = ok"
    with configured(spark, spark_sql_ansi_enabled="false"):
        df = assert_like_spark(spark, lambda: spark.sql(query))
        assert made(df) == 1, plan_of(df)
