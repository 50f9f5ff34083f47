"""Partial aggregates that workers compute, above joins and above scans, compared with Spark's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.planned_joins import assert_like_spark, mode, plan_of
from tests.support.rows import rows_of
from tests.support.sessions import configured

ROWS = 4_000
COLUMNS = {
    "k": "if(id % 11 = 0, NULL, int(id % 7))",
    "many": "id * 37 % 3001",
    "t": "if(id % 13 = 0, NULL, concat('text ', id % 17))",
    "short": "substring('ABCDEF', int(id % 6) + 1, 1)",
    "b": "id % 3 = 0",
    "d": "date_add(DATE'2020-01-01', int(id % 40))",
    "ts": "timestamp_seconds(id % 90)",
    "x": "CASE id % 6 WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN 0.0D WHEN 3 THEN NULL ELSE id / 8 END",
    "f": "float(if(id % 9 = 0, NULL, id % 5 - 2))",
    "i8": "tinyint(id % 100 - 50)",
    "i32": "int(id - 2000)",
    "i64": "if(id % 10 = 0, NULL, id * 1000000007)",
    "m": "decimal(if(id % 8 = 0, NULL, id / 100))",
    "m9": "CAST(id / 7 AS DECIMAL(9, 2))",
    "m15": "CAST(id * 1.25 AS DECIMAL(15, 2))",
    "m38": "CAST(concat(id, '123456789012345678901234.0123456789') AS DECIMAL(38, 10))",
    "bin": "if(id % 5 = 0, NULL, CAST(concat('b', id % 3) AS BINARY))",
}
KEYS = [
    *([name] for name in COLUMNS),
    *(["k", "t"], ["short", "b"], ["i64", "many"], ["m38", "x", "f"], ["t", "bin", "d", "ts", "k"]),
]
CALLS = {
    "any": ["count({0})", "min({0})", "max({0})", "count(DISTINCT {0})"],
    "number": ["sum({0})", "avg({0})"],
    "moments": ["stddev({0})", "stddev_pop({0})", "variance({0})", "var_pop({0})"],
    "integer": ["bit_and({0})", "bit_or({0})", "bit_xor({0})"],
    "bool": ["bool_and({0})", "bool_or({0})"],
}
FAMILIES = {
    **dict.fromkeys(("k", "i8", "i32"), ("any", "number", "integer")),
    **dict.fromkeys(("i64", "f"), ("any", "number")),
    **dict.fromkeys(("m", "m9", "m15", "m38"), ("any", "number")),
    "b": ("any", "bool"),
}


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("groups")
    columns = [f"{value} AS {name}" for name, value in COLUMNS.items()]
    spark.range(0, ROWS, 1, 2).selectExpr("id", *columns).write.parquet(f"{folder}/facts")
    spark.range(7).selectExpr("int(id) AS dk", "concat('name ', id % 3) AS name", "id * 2 AS w").write.parquet(
        f"{folder}/names"
    )
    spark.range(0).selectExpr("id", *columns).write.parquet(f"{folder}/nothing")
    for name in ("facts", "names", "nothing"):
        spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
    yield
    for name in ("facts", "names", "nothing"):
        spark.catalog.dropTempView(name)


@pytest.fixture(autouse=True)
def _forced(spark: SparkSession) -> Iterator[None]:
    with configured(
        spark, spark_sparkext_mode="auto", spark_sparkext_debug_force="true", spark_sparkext_debug_groups="parts"
    ):
        yield


def grouped(df: DataFrame) -> int:
    """Return the number of partial aggregates in a plan that workers compute."""
    return len(re.findall(r"Pipelined(?:Join|Aggregate) \[.* groups=", plan_of(df)))


def check(spark: SparkSession, query: str, groups: int = 1, whole: bool = True) -> None:
    """Assert that workers compute `groups` partial aggregates, with Spark's rows; also in `whole` mode, if set."""
    assert grouped(spark.sql(query)) == groups, plan_of(spark.sql(query))
    parts = outcome(spark, query)
    with configured(spark, spark_sparkext_debug_groups="whole"):
        assert ("of whole groups" in plan_of(spark.sql(query))) == whole, plan_of(spark.sql(query))
        finished = outcome(spark, query) if whole else parts
    with mode(spark, "off"):
        assert parts == finished == outcome(spark, query), query


def outcome(spark: SparkSession, query: str) -> object:
    try:
        return rows_of(spark.sql(query))
    except PySparkException as error:
        return error.getCondition()


@pytest.mark.parametrize("keys", KEYS, ids=",".join)
def test_group_columns_of_every_type(spark: SparkSession, keys: list[str]) -> None:
    names = ", ".join(keys)
    check(spark, f"SELECT {names}, count(*), sum(i32), max(many) FROM facts GROUP BY {names}")
    check(spark, f"SELECT {names}, count(*) FROM facts JOIN names ON k = dk GROUP BY {names}")


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("by", ["", "GROUP BY k", "GROUP BY many"])
def test_functions_of_every_type(spark: SparkSession, name: str, by: str) -> None:
    families = FAMILIES.get(name, ("any",))
    # Between 0.0 and -0.0 from two tasks, either may be the minimum.
    value = f"({name} + 0D)" if name == "x" else name
    calls = [call.format(value) for family in families for call in CALLS[family] if "DISTINCT" not in call]
    # Spark averages decimals of few digits as doubles, which only Spark converts back.
    check(spark, f"SELECT {', '.join(calls)}, count(*) FROM facts {by}", whole=name not in ("m", "m9"))


def test_an_extreme_is_the_first_of_equal_zeros(spark: SparkSession, tmp_path: Path) -> None:
    """Within one task, rows have an order: the first zero of each group, -0.0 or 0.0, is its minimum."""
    spark.table("facts").orderBy("id").coalesce(1).write.parquet(f"{tmp_path}/facts")
    spark.read.parquet(f"{tmp_path}/facts").createOrReplaceTempView("ordered_facts")
    calls = "min(x), max(-x), min(x * f), max(x * f)"
    for by in ("", "GROUP BY k", "GROUP BY many"):
        check(spark, f"SELECT {calls} FROM ordered_facts {by}")
    with mode(spark, "off"):
        firsts = {str(row[0]) for row in spark.sql("SELECT min(x) FROM ordered_facts GROUP BY k").collect()}
    assert firsts == {"0.0", "-0.0"}


@pytest.mark.parametrize("name", ["i32", "f", "i64"])
def test_moments(spark: SparkSession, name: str) -> None:
    """The last digits of moments depend on the order of rows."""
    calls = ", ".join(call.format(name) for call in CALLS["moments"])
    query = f"SELECT coalesce(k, -1) AS g, {calls} FROM facts GROUP BY k ORDER BY g"
    df = spark.sql(query)
    assert grouped(df) == 1
    ours = df.collect()
    with mode(spark, "off"):
        for row, expected in zip(ours, spark.sql(query).collect(), strict=True):
            assert tuple(row) == pytest.approx(tuple(expected), rel=1e-9)


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, count(DISTINCT t) FROM facts GROUP BY k",
        "SELECT count(DISTINCT t), sum(i32) FROM facts",
        "SELECT k, count(*) FILTER (WHERE i32 > 5), sum(m) FILTER (WHERE b), count(t) FILTER (WHERE b)"
        " FROM facts GROUP BY k",
        "SELECT k, sum(m15 * (1 - m9)), avg(m15 + 1), sum(CASE WHEN b THEN m15 ELSE 0 END) FROM facts GROUP BY k",
        "SELECT year(d) AS y, month(d), count(*) FROM facts GROUP BY y, month(d)",
        "SELECT substring(t, 6, 2), max(length(t)) FROM facts GROUP BY substring(t, 6, 2)",
        "SELECT k FROM facts GROUP BY k HAVING count(*) > 500",
        "SELECT DISTINCT k, short FROM facts",
        "SELECT k, sum(i32) FROM facts WHERE m15 > 100 AND t LIKE '%1%' GROUP BY k",
        "SELECT name, sum(w), sum(m15 * w) FROM facts JOIN names ON k = dk GROUP BY name",
        "SELECT name, count(*) FROM facts LEFT JOIN names ON k = dk AND w > 4 GROUP BY name",
        "SELECT k, count(*) FROM facts LEFT SEMI JOIN names ON k = dk GROUP BY k",
        "SELECT k, count(*) FROM facts LEFT ANTI JOIN names ON k = dk GROUP BY k",
        "SELECT k, count(*) FROM facts WHERE k IN (SELECT dk FROM names) OR b GROUP BY k",
        "SELECT name, count(*), max(s) FROM (SELECT *, i32 + w AS s FROM facts JOIN names ON k = dk) WHERE s > 3"
        " GROUP BY name",
        "SELECT a.k, count(*) FROM facts a JOIN facts b ON a.id = b.id AND a.i32 + b.i32 > 10 GROUP BY a.k",
        "SELECT name, count(*) FROM names FULL JOIN facts ON k = dk GROUP BY name",
        "SELECT sum(i64) FROM nothing",
        "SELECT k, sum(i64), count(*) FROM nothing GROUP BY k",
        "SELECT sum(w), count(*) FROM nothing JOIN names ON k = dk",
        "SELECT id, first(t), last(x), any_value(bin), first(m, true) FROM facts GROUP BY id",
        "SELECT short, first(short), last(t, true) FILTER (WHERE t = 'text 3') FROM facts GROUP BY short",
        "SELECT many, sum(c) FROM (SELECT many, k, count(*) AS c FROM facts GROUP BY many, k) GROUP BY many",
    ],
)  # fmt: skip
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_queries(spark: SparkSession, query: str, adaptive: str) -> None:
    with configured(spark, spark_sql_adaptive_enabled=adaptive):
        check(spark, query, whole="DISTINCT t" not in query and "FULL" not in query)


EXPANDED = [
    "SELECT k, t, count(*), sum(i32), avg(m15), grouping_id() FROM facts GROUP BY ROLLUP (k, t)",
    "SELECT short, b, d, count(f), min(t), grouping(b) FROM facts WHERE i32 > 0 GROUP BY CUBE (short, b, d)",
    "SELECT x, m38, bin, max(ts), count(*) FROM facts GROUP BY GROUPING SETS ((x), (m38), (bin, x), (), (x))",
    "SELECT k, sum(k), count(k) FROM facts GROUP BY ROLLUP (k)",
    "SELECT k % 3, t, sum(k + i32) FROM facts GROUP BY ROLLUP (k % 3, t) HAVING max(i8) > 0",
    "SELECT name, w, sum(m15 * w) FROM facts JOIN names ON k = dk AND i32 > w GROUP BY CUBE (name, w)",
    "SELECT name, d, count(*) FROM facts LEFT JOIN names ON k = dk GROUP BY ROLLUP (name, d)",
    "SELECT count(DISTINCT t), count(DISTINCT short), sum(i64), min(x + 0D) FROM facts",
    "SELECT k, count(DISTINCT t), count(DISTINCT m9), max(d) FROM facts GROUP BY k",
    "SELECT k, count(DISTINCT t) FILTER (WHERE b), sum(DISTINCT i8) FROM facts GROUP BY k",
    "SELECT name, count(DISTINCT t), count(DISTINCT w) FROM facts JOIN names ON k = dk GROUP BY ROLLUP (name)",
    "SELECT k, count(*) FROM nothing GROUP BY ROLLUP (k)",
    "SELECT k, t, count(*) FROM facts JOIN (SELECT dk FROM names WHERE w > 100) ON k = dk GROUP BY CUBE (k, t)",
]


@pytest.mark.parametrize("query", EXPANDED)
def test_rows_that_are_grouped_several_times(spark: SparkSession, query: str) -> None:
    check(spark, query, whole="grouping(b)" not in query)
    assert "Expand" not in plan_of(spark.sql(query))


@pytest.mark.parametrize("failing", ["sum(m15 / (k - 3))", "sum(i32 * i32 * i32)"])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_expanded_rows_that_fail(spark: SparkSession, ansi: str, failing: str) -> None:
    with configured(spark, spark_sql_ansi_enabled=ansi):
        check(spark, f"SELECT short, {failing} FROM facts GROUP BY ROLLUP (short)")


def test_expanded_rows_over_a_build_side_that_does_not_fit(spark: SparkSession) -> None:
    """Spark's own joins run, and rows are expanded above them, even if they are already partitioned by the key."""
    facts = "(SELECT /*+ REPARTITION(3, k) */ * FROM facts)"
    for query in (
        f"SELECT k, b, sum(w) FROM {facts} JOIN names ON k = dk GROUP BY ROLLUP (k, b)",
        f"SELECT k, count(DISTINCT t), count(DISTINCT w) FROM {facts} JOIN names ON k = dk GROUP BY k",
    ):
        with configured(spark, spark_sparkext_partitioned="never", spark_sparkext_buildSide_maxBytes="16"):
            check(spark, query, whole=False)
            df = spark.sql(query)
            df.collect()
            assert "fell back to Spark's own joins" in plan_of(df)


def test_the_plan_shows_each_grouping(spark: SparkSession) -> None:
    df = spark.sql("SELECT k, b, sum(i32) FROM facts GROUP BY ROLLUP (k, b)")
    shown = "groups=[facts.k, facts.b, 0L]; [facts.k, NULL, 1L]; [NULL, NULL, 3L] of [sum(facts.i32)]"
    assert shown in plan_of(df), plan_of(df)


def test_more_projections_than_workers_are_told_of(spark: SparkSession) -> None:
    cube = "SELECT count(*) FROM facts JOIN names ON k = dk GROUP BY CUBE (k, t, b, d, i8, w{})"
    check(spark, cube.format(""))
    assert "groups=by Spark (rows expanded to more than 64)" in plan_of(spark.sql(cube.format(", short")))


CHOICES = ["first({0})", "last({0})", "first({0}, true)", "last({0}, true)", "any_value({0}) IGNORE NULLS"]


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_chosen_of_groups(spark: SparkSession, name: str) -> None:
    """If one task has all rows, Spark's first and last rows are the same ones."""
    calls = ", ".join(call.format(name) for call in CHOICES)
    check(spark, f"SELECT {calls} FROM facts WHERE id < 1000")


@pytest.mark.parametrize("budget", [1, 7])
def test_budgets_of_few_rows(spark: SparkSession, budget: int) -> None:
    with configured(spark, spark_sparkext_morsel_maxRows=budget, spark_sparkext_morsel_minRows=1):
        check(spark, "SELECT k, t, count(*), sum(m15), min(t) FROM facts WHERE id < 300 GROUP BY k, t")


def test_keys_that_collide(spark: SparkSession) -> None:
    with configured(spark, spark_sparkext_debug_hashMask=0):
        check(spark, "SELECT many, t, count(*), sum(i32) FROM facts GROUP BY many, t")


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(
    "call",
    [
        "sum(i64 * 9000000)",
        "sum(i64) + sum(9223372036854775807 - id)",
        "sum(m38)",
        "avg(m38)",
        "sum(m38 * m15)",
        "sum(m15 / (k - 3))",
        "sum(if(k = 3, 0, i32 % (k - 3)))",
        "max(i32 * i32 * i32)",
        "count(1 / (i32 - 7)) FILTER (WHERE i32 <> 7)",
    ],
)
def test_overflows(spark: SparkSession, call: str, ansi: str) -> None:
    """Both give null, or both give Spark's own error."""
    query = f"SELECT k, {call} FROM facts GROUP BY k"
    with configured(spark, spark_sql_ansi_enabled=ansi):
        assert grouped(spark.sql(query)) == 1
        ours = outcome(spark, query)
        with mode(spark, "off"):
            assert ours == outcome(spark, query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, count(t) FROM facts GROUP BY ROLLUP (k) HAVING grouping(k) = 1",
        "SELECT k, first(i32) FILTER (WHERE b) FROM facts GROUP BY k",
        "SELECT k, collect_set(i32) FROM facts GROUP BY k",
        "SELECT k, sum(v) > 0 FROM (SELECT k, i32 + rand() AS v FROM facts) GROUP BY k",
        "SELECT k, try_sum(i32) FROM facts GROUP BY k",
        "SELECT reverse(t), count(*) FROM facts GROUP BY reverse(t)",
        "SELECT count(*) FROM facts",
        "SELECT t COLLATE UTF8_LCASE AS c, count(*) FROM facts GROUP BY c",
        "SELECT array(k), count(*) FROM facts GROUP BY array(k)",
    ],
)
def test_what_spark_computes_itself(spark: SparkSession, query: str) -> None:
    df = spark.sql(query)
    assert grouped(df) == 0, plan_of(df)
    df.collect()


def test_a_build_side_that_does_not_fit(spark: SparkSession) -> None:
    joined = "facts a JOIN facts b ON a.id = b.id WHERE a.i32 > b.k"
    query = f"SELECT a.k, min(b.t), sum(a.m15 * b.m9) FROM {joined} GROUP BY a.k"
    with configured(spark, spark_sparkext_partitioned="never", spark_sparkext_buildSide_maxBytes="2k"):
        for adaptive in ("true", "false"):
            with configured(spark, spark_sql_adaptive_enabled=adaptive):
                df = spark.sql(query)
                assert grouped(df) == 1
                ours = rows_of(df)
                assert "fell back to Spark's own joins" in plan_of(df)
                with mode(spark, "off"):
                    assert ours == rows_of(spark.sql(query))


def test_groups_of_partitions_that_need_no_shuffle(spark: SparkSession) -> None:
    """The probe side is already partitioned by the grouping key, and is not shuffled."""
    query = (
        "SELECT k, count(*), sum(w) FROM (SELECT /*+ REPARTITION(3, k) */ * FROM facts) JOIN names ON k = dk GROUP BY k"
    )
    for limit in ("1g", "16"):
        with configured(spark, spark_sparkext_partitioned="never", spark_sparkext_buildSide_maxBytes=limit):
            check(spark, query, whole=False)


def test_the_plan_says_why_spark_groups(spark: SparkSession) -> None:
    df = spark.sql("SELECT name, collect_set(i32) FROM facts JOIN names ON k = dk GROUP BY name")
    assert "groups=by Spark (an aggregate that only Spark computes: collect_set(facts.i32))" in plan_of(df)


@pytest.mark.parametrize("condition", ["v / w > 2", "v / (w - 4) > 1", "w <> 4 AND v / (w - 4) > 1"])
def test_a_filter_that_may_fail(spark: SparkSession, condition: str) -> None:
    rows = "(SELECT name, w, double(i32) AS v FROM facts JOIN names ON k = dk)"
    check(spark, f"SELECT name, count(*) FROM {rows} WHERE {condition} GROUP BY name")


def test_a_part_of_a_filter_that_is_null_keeps_the_next_from_failing(spark: SparkSession) -> None:
    """Code that Spark generates for a filter skips the second conjunct after a null; its AND would evaluate both."""
    rows = "(SELECT name, w, double(i32) AS v FROM facts JOIN names ON k = dk)"
    part = "nullif(w + v - v, 4) > 2 AND v / (w - 4) > 1"
    check(spark, f"SELECT name, count(*) FROM {rows} WHERE {part} GROUP BY name")
    check(spark, f"SELECT name, count(*) FILTER (WHERE {part}) FROM {rows} GROUP BY name")


def test_a_bad_setting_leaves_aggregates_alone(spark: SparkSession) -> None:
    with mode(spark, "AUTO"):
        assert spark.sql("SELECT k, count(*) FROM facts GROUP BY k").count() == 8


def test_hint_mode_takes_no_scan(spark: SparkSession, tmp_path: Path) -> None:
    with configured(spark, spark_sparkext_mode="hint", spark_sparkext_debug_force="false"):
        assert grouped(spark.sql("SELECT k, sum(i32) FROM facts GROUP BY k")) == 0
        hinted = "SELECT /*+ PIPELINED_JOIN(names) */ name, sum(i32) FROM facts JOIN names ON k = dk GROUP BY name"
        check(spark, hinted, whole=False)


def test_equal_pipelines_run_once(spark: SparkSession) -> None:
    part = "SELECT name, sum(w) AS s FROM facts JOIN names ON k = dk GROUP BY name"
    query = f"SELECT a.name, a.s, b.s FROM ({part}) a JOIN ({part}) b ON a.name = b.name"
    assert_like_spark(spark, lambda: spark.sql(query))
    assert "ReusedExchange" in plan_of(spark.sql(query)) or plan_of(spark.sql(query)).count("groups=") <= 2
