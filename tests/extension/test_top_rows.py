"""Top-n queries whose rows workers select in each task, compared with Spark's own row by row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkext
from tests.support.planned_joins import mode, plan_of
from tests.support.sessions import configured

ROWS = 1_500
COLUMNS = {
    "k": "if(id % 11 = 0, NULL, int(id % 7))",
    "t": "if(id % 13 = 0, NULL, concat(if(id % 2 = 0, 'é', 'z'), id * 37 % 401))",
    "b": "id % 3 = 0",
    "d": "date_add(DATE'2020-01-01', int(id * 7 % 40))",
    "ts": "timestamp_seconds(id * 11 % 90)",
    "x": "CASE id % 6 WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN 0.0D WHEN 3 THEN NULL ELSE id / 8 END",
    "m": "CAST(if(id % 8 = 0, NULL, id * 37 % 1009) / 100 - 3 AS DECIMAL(9, 2))",
    "m38": "CAST(concat(if(id % 2 = 0, '', '-'), id * 37 % 97, '12345678901234567890.0123456789') AS DECIMAL(38, 10))",
    "bin": "if(id % 5 = 0, NULL, unhex(hex(id * 91 % 256)))",
    "i": "make_dt_interval(0, int(id * 37 % 50), int(id % 60))",
    "arr": "array(id % 5)",
    "nested": "named_struct('a', array(id, NULL), 'm', map(id, string(id)))",
}
JOINED = "FROM facts JOIN names ON k = dk"


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("top")
    columns = [f"{value} AS {name}" for name, value in COLUMNS.items()]
    spark.range(0, ROWS, 1, 2).selectExpr("id", *columns).write.parquet(f"{folder}/facts")
    spark.range(6).selectExpr("int(id) AS dk", "concat('name ', id % 3) AS name").write.parquet(f"{folder}/names")
    for name in ("facts", "names"):
        spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
    yield
    for name in ("facts", "names"):
        spark.catalog.dropTempView(name)


@pytest.fixture(autouse=True)
def _forced(spark: SparkSession) -> Iterator[None]:
    with configured(spark, spark_sparkext_mode="auto", spark_sparkext_debug_force="true"):
        yield


def tops(df: DataFrame) -> list[str]:
    """Return the top-n clause of each pipeline in a plan."""
    return re.findall(r"Pipelined\w+ \[.* top=(.*?)(?: fell back.*)?$", plan_of(df), re.MULTILINE)


def check(spark: SparkSession, query: str) -> DataFrame:
    """Assert that workers select the top rows, before and after execution, with Spark's rows in Spark's order."""
    df = spark.sql(query)
    told = tops(df)
    assert len(told) == 1 and "by Spark" not in told[0], plan_of(df)
    ours = [repr(row) for row in df.collect()]
    assert tops(df) == told, plan_of(df)
    with mode(spark, "off"):
        own = spark.sql(query)
        assert not tops(own)
        assert ours == [repr(row) for row in own.collect()]
    return df


@pytest.mark.parametrize("column", [name for name in COLUMNS if name not in ("arr", "nested")])
def test_types(spark: SparkSession, column: str) -> None:
    way = "DESC" if len(column) == 1 else "ASC NULLS LAST"
    check(spark, f"SELECT id, {column} {JOINED} ORDER BY {column} {way}, id LIMIT 40")


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT id, nested, t {JOINED} ORDER BY b DESC, name, x DESC NULLS FIRST, m38, id LIMIT 25",
        f"SELECT name AS t, id AS n {JOINED} ORDER BY n DESC LIMIT 3",
        f"SELECT id {JOINED} ORDER BY t, id LIMIT 10 OFFSET 7",
        f"SELECT double(id) * 2 AS more, try_divide(id, k) AS part {JOINED} ORDER BY t DESC, facts.id LIMIT 10",
        "SELECT id, name FROM facts LEFT JOIN names ON k = dk ORDER BY name DESC NULLS FIRST, id LIMIT 300",
        "SELECT id, name FROM names RIGHT JOIN facts ON k = dk ORDER BY name, id LIMIT 300",
        "SELECT id, name FROM facts FULL JOIN names ON k = dk + 3 ORDER BY id, name LIMIT 9",
        "SELECT id, t FROM facts WHERE k IN (SELECT dk FROM names) ORDER BY t, id LIMIT 20",
        "SELECT id, k FROM facts LEFT ANTI JOIN names ON k = dk ORDER BY k DESC, id LIMIT 20",
        f"SELECT id {JOINED} WHERE id < 0 ORDER BY t, id LIMIT 20",
        f"SELECT b, id FROM (SELECT b, id {JOINED} ORDER BY id DESC LIMIT 5) GROUP BY ALL ORDER BY id",
        f"SELECT (SELECT max(id) FROM (SELECT id {JOINED} ORDER BY t, id LIMIT 30)) AS most",
    ],
)  # fmt: skip
def test_queries(spark: SparkSession, query: str) -> None:
    check(spark, query)


def test_without_adaptive_execution(spark: SparkSession) -> None:
    with configured(spark, spark_sql_adaptive_enabled="false"):
        check(spark, f"SELECT name AS t, id AS n, nested {JOINED} ORDER BY x DESC, n DESC LIMIT 30 OFFSET 7")
        check(spark, f"SELECT (SELECT max(id) FROM (SELECT id {JOINED} ORDER BY t, id LIMIT 30)) AS most")


def test_as_many_rows_as_there_are(spark: SparkSession) -> None:
    rows = spark.sql(f"SELECT id {JOINED}").count()
    for limit in (1, rows - 1, rows, rows + 1):
        check(spark, f"SELECT id, t {JOINED} ORDER BY t DESC, id LIMIT {limit}")


def test_no_rows(spark: SparkSession) -> None:
    assert spark.sql(f"SELECT id {JOINED} ORDER BY t LIMIT 0").collect() == []


@pytest.mark.parametrize("budget", [1, 7])
def test_ties_and_budgets_of_few_rows(spark: SparkSession, budget: int) -> None:
    """Any of the tied rows may be returned."""
    query = f"SELECT id, b, name {JOINED} AND id < 100 ORDER BY b, name DESC LIMIT 30"
    with configured(spark, spark_sparkext_morsel_maxRows=budget, spark_sparkext_morsel_minRows=1):
        df = spark.sql(query)
        assert len(tops(df)) == 1
        ours = df.collect()
    assert len({row.id for row in ours}) == 30
    with mode(spark, "off"):
        assert [(row.b, row.name) for row in ours] == [(row.b, row.name) for row in spark.sql(query).collect()]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            f"SELECT id {JOINED} ORDER BY upper(t), id LIMIT 5",
            "ordered by a value that is computed above the joins: upper(facts.t)",
        ),
        (
            f"SELECT id, t COLLATE UNICODE_CI AS c {JOINED} ORDER BY c, id LIMIT 5",
            "a column that may fail, or is not deterministic: collate(facts.t, UNICODE_CI)",
        ),
        (f"SELECT id, 8 / (k - 9) AS q {JOINED} ORDER BY id LIMIT 5", "a column that may fail, or is not deter"),
        (f"SELECT id {JOINED} ORDER BY arr, id LIMIT 5", "ordered by a value of type array<bigint>: facts.arr"),
        (f"SELECT id {JOINED} ORDER BY id LIMIT 100001", "more than 100000 rows"),
        (
            f"SELECT id {JOINED} WHERE trim('x' FROM concat(t, name)) > 'A' ORDER BY id LIMIT 5",
            "a filter above the joins that only Spark evaluates",
        ),
    ],
)  # fmt: skip
def test_what_spark_chooses_itself(spark: SparkSession, query: str, reason: str) -> None:
    df = spark.sql(query)
    (told,) = tops(df)
    assert told.startswith(f"by Spark ({reason}"), plan_of(df)
    ours = df.collect()
    with mode(spark, "off"):
        assert ours == spark.sql(query).collect()


def test_a_column_that_fails_on_other_rows(spark: SparkSession) -> None:
    """The column is computed for all rows, as in Spark."""
    df = spark.sql(f"SELECT id, 8 / (k - 5) AS q {JOINED} ORDER BY id LIMIT 1")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        df.collect()


def test_a_build_side_that_does_not_fit(spark: SparkSession) -> None:
    """Spark's own joins run, and emit all rows."""
    query = "SELECT a.id, b.t FROM facts a JOIN facts b ON a.id = b.id ORDER BY b.t DESC, a.id LIMIT 12"
    with configured(spark, spark_sparkext_partitioned="never", spark_sparkext_buildSide_maxBytes="2k"):
        for adaptive in ("true", "false"):
            with configured(spark, spark_sql_adaptive_enabled=adaptive):
                assert "fell back to Spark's own joins" in plan_of(check(spark, query))


def test_pipelines_are_not_taken_for_each_other(spark: SparkSession) -> None:
    rows = f"SELECT k, id {JOINED}"
    query = f"({rows} ORDER BY id LIMIT 2) UNION ALL ({rows} ORDER BY id DESC LIMIT 2) UNION ALL ({rows})"
    df = spark.sql(query)
    assert [told.split()[0] for told in tops(df)] == ["2", "2"]
    ours = sorted(map(repr, df.collect()))
    with mode(spark, "off"):
        assert ours == sorted(map(repr, spark.sql(query).collect()))


def test_the_report_names_it(spark: SparkSession) -> None:
    df = spark.table("facts").join(spark.table("names"), F.expr("k = dk")).orderBy("id").limit(4)
    assert [row.id for row in df.collect()] == [1, 2, 3, 4]
    report = sparkext.report(df)
    assert [join.operator for join in report.joins][-1] == "top"
    assert report.joins[-1].rows_out <= 8


def test_a_fault_in_planning_it(spark: SparkSession) -> None:
    """The pipeline emits all rows, as it does without a top-n."""
    jvm: Any = spark._jvm
    guarded = jvm.org.apache.spark.sql.sparkext.planning.Guarded
    guarded.inject("top", jvm.java.lang.IllegalStateException("injected"))
    try:
        df = spark.sql(f"SELECT id {JOINED} ORDER BY id LIMIT 3")
        assert "PipelinedJoin" in plan_of(df) and not tops(df)
        assert [row.id for row in df.collect()] == [1, 2, 3]
    finally:
        guarded.mend()
