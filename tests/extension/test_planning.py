"""Planning never fails a query: injected faults in each part, deep trees, long lists, and the wording of reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.planned_joins import (
    assert_declined,
    assert_like_spark,
    assert_pipelined,
    mode,
    pipelines_of,
    plan_of,
    reasons_of,
)
from tests.support.rows import rows_of
from tests.support.sessions import configured

HINT = "/*+ PIPELINED_JOIN(b) */"
THROWN = (
    "java.lang.StackOverflowError",
    "java.lang.NoClassDefFoundError",
    "java.lang.RuntimeException",
    "scala.NotImplementedError",
)


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("planning")
    tables = {
        "a": spark.range(60).selectExpr("id AS k", "int(id % 7) AS j", "double(id) / 2 AS x", "string(id) AS s"),
        "b": spark.range(40).selectExpr("id * 2 % 30 AS mk", "int(id) AS mj", "string(id) AS ms"),
    }
    for name, table in tables.items():
        table.write.parquet(f"{folder}/{name}")
        spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
    yield
    for name in tables:
        spark.catalog.dropTempView(name)


def sql(spark: SparkSession, text: str) -> Callable[[], DataFrame]:
    return lambda: spark.sql(text)


# --- wordings ---


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE mk = k AND length(ms) < length(s) + 5) OR j = 3",
        "SELECT k FROM a WHERE j = 3 OR k NOT IN (SELECT mk FROM b WHERE length(ms) < length(s) + 5)",
        "SELECT k, k IN (SELECT mk FROM b WHERE length(ms) < length(s) + 5) FROM a",
    ],
    ids=["exists", "not in", "a value"],
)
@pytest.mark.parametrize("name", ["auto", "hint"])
def test_an_existence_join_that_is_declined(spark: SparkSession, query: str, name: str) -> None:
    with mode(spark, name), configured(spark, spark_sparkext_debug_force="true"):
        out = assert_like_spark(spark, sql(spark, query))
        assert_declined(out, "a condition in addition to the keys of an existence join, which only Spark evaluates")


# --- faults ---


@contextmanager
def fault(spark: SparkSession, part: str, thrown: str, message: str = "injected") -> Iterator[None]:
    """Make a part of planning throw whenever it begins."""
    jvm: Any = spark._jvm
    guarded = jvm.org.apache.spark.sql.sparkext.planning.Guarded
    guarded.inject(part, reduce(getattr, thrown.split("."), jvm)(message))
    try:
        yield
    finally:
        guarded.mend()


@pytest.mark.parametrize("thrown", THROWN)
@pytest.mark.parametrize("part", ["hints", "join"])
def test_a_fault_leaves_joins_to_spark(spark: SparkSession, part: str, thrown: str) -> None:
    query = sql(spark, f"SELECT {HINT} k, ms FROM a JOIN b ON k = mk")
    assert_pipelined(assert_like_spark(spark, query), 1)
    with fault(spark, part, thrown):
        out = assert_like_spark(spark, query)
        assert pipelines_of(out) == []
        reason = f"planning it failed: {thrown}: injected"
        assert reasons_of(out) == [reason]
        if part == "join":
            assert_declined(out, reason)
    assert_pipelined(query(), 1)


@pytest.mark.reduced("values", reason="five seconds each")
@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("part", ["asof", "nearness", "join"])
def test_a_fault_leaves_as_of_joins_to_spark(spark: SparkSession, part: str, adaptive: str) -> None:
    """Even after the as-of join has been replaced: the original join is restored within the rest of the query."""

    def query() -> DataFrame:
        left, right = spark.table("a"), spark.table("b").groupBy("mj").agg(F.max("ms").alias("ms"))
        near = left.selectExpr("int(k) AS i", "j", "1 AS one")._joinAsOf(
            right.hint("pipelined_join"), leftAsOfColumn="i", rightAsOfColumn="mj", how="left", tolerance=F.lit(5)
        )
        return near.filter("j < 5").groupBy("j", "one").agg(F.max("ms"), F.sum("mj"), F.count("i")).filter("j > 1")

    with configured(spark, spark_sql_adaptive_enabled=adaptive):
        assert pipelines_of(assert_like_spark(spark, query)) == [1]
        for thrown in THROWN[:2]:
            with fault(spark, part, thrown):
                out = assert_like_spark(spark, query)
                assert pipelines_of(out) == [], plan_of(out)
                assert f"planning it failed: {thrown}: injected" in reasons_of(out)


@pytest.mark.parametrize("part", ["scan", "columns", "description"])
def test_a_fault_beside_the_plan_leaves_the_pipeline(spark: SparkSession, part: str) -> None:
    query = sql(spark, f"SELECT {HINT} k, ms FROM a JOIN b ON k = mk")
    with configured(spark, spark_sparkext_scan_fused=str(part != "columns").lower()):
        for thrown in THROWN:
            with fault(spark, part, thrown):
                out = assert_like_spark(spark, query)
                if part == "scan":
                    assert_pipelined(out, 1)
                    assert f"from Spark (planning it failed: {thrown}: injected)" in plan_of(out)
                assert "PipelinedJoin" in plan_of(out)


@pytest.mark.parametrize("part", ["rows", "partitions", "sizes"])
def test_a_fault_in_what_follows_leaves_the_plan(spark: SparkSession, part: str, tmp_path: Path) -> None:
    grouped = "SELECT k, max(j) AS j FROM a GROUP BY k"
    query = f"SELECT {HINT} k, ms FROM ({grouped}) JOIN b ON k = mk"
    with mode(spark, "off"):
        expected = rows_of(spark.sql(query))
    for thrown in THROWN:
        with fault(spark, part, thrown), configured(spark, spark_sql_adaptive_enabled="true"):
            out = spark.sql(query)
            out.write.parquet(f"{tmp_path}/{thrown}")
            assert rows_of(spark.read.parquet(f"{tmp_path}/{thrown}")) == expected
            assert rows_of(out) == expected
            assert_pipelined(out, 1)


def test_a_fault_in_what_is_said_of_joins(spark: SparkSession) -> None:
    with configured(spark, spark_sparkext_debug_force="true"):
        for part in ("settings", "note"):
            for thrown in THROWN:
                with fault(spark, part, thrown):
                    out = assert_like_spark(spark, sql(spark, "SELECT k, ms FROM a CROSS JOIN b"))
                    assert not pipelines_of(out) and not reasons_of(out)


def test_a_fault_is_logged_once(spark: SparkSession) -> None:
    logging: Any = spark._jvm.org.apache.logging.log4j
    writer = spark._jvm.java.io.StringWriter()
    name = "org.apache.spark.sql.sparkext.planning.Guarded"
    appender = logging.core.appender.WriterAppender.newBuilder().setName("faults").setTarget(writer).build()
    appender.start()
    logger = logging.LogManager.getContext(False).getLogger(name)
    logging.core.config.Configurator.setLevel(name, logging.Level.WARN)
    logger.addAppender(appender)
    try:
        for message in ("one", "one", "another", "one"):
            with fault(spark, "join", "java.lang.IllegalStateException", message):
                assert rows_of(spark.sql(f"SELECT {HINT} k, ms FROM a JOIN b ON k = mk"))
        said = writer.toString()
        assert said.count("planning pipelined joins failed (join)") == 2, said
        assert "IllegalStateException: one" in said and "IllegalStateException: another" in said
    finally:
        logger.removeAppender(appender)
        logging.core.config.Configurator.setLevel(name, logging.Level.ERROR)


def test_bad_hints_and_what_nobody_survives_are_errors_still(spark: SparkSession) -> None:
    query = f"SELECT {HINT} k FROM a JOIN b ON k = mk"
    with pytest.raises(IllegalArgumentException, match="got 'magic', expected one of auto, hash, sort_merge"):
        spark.sql(query.replace("(b)", "(b, 'algorithm=magic')"))
    with pytest.raises(IllegalArgumentException, match="unknown option"):
        spark.sql(query.replace("(b)", "(b, 'speed=high')"))
    with fault(spark, "join", "java.lang.OutOfMemoryError"), pytest.raises(Exception, match="OutOfMemoryError"):
        plan_of(spark.sql(query))


# --- trees that are deep ---


def chained(count: int, connect: Callable[[Column, Column], Column]) -> Column:
    """Return `count` comparisons connected to a tree that is as deep."""
    return reduce(connect, [F.col("j") != F.lit(1000 + number) for number in range(count)])


CONNECTED: dict[str, Callable[[Column, Column], Column]] = {
    "and": lambda one, other: one & other,
    "or": lambda one, other: one | other,
    "not": lambda one, other: ~(one & other),
    "sum": lambda one, other: (one.cast("int") + other.cast("int")) > 0,
}


@pytest.mark.parametrize("name", CONNECTED)
def test_deep_conditions(spark: SparkSession, name: str) -> None:
    """Conditions as deep as Spark itself supports: in a join, above it and below it."""
    left, right = spark.table("a"), spark.table("b")
    deep, key = chained(40 if name == "sum" else 120, CONNECTED[name]), F.col("k") == F.col("mk")
    with configured(spark, spark_sparkext_debug_force="true", spark_sql_codegen_wholeStage="false"):
        for query in (
            lambda: left.join(right, key & deep, "left").select("k", "ms"),
            lambda: left.filter(deep).join(right, key).select("k", "ms"),
            lambda: left.join(right, key).filter(deep & (F.col("mj") > 3)).select("k", "ms"),
        ):
            out = assert_like_spark(spark, query)
            # The formula may be too large without being too deep.
            assert sum(pipelines_of(out)) + len(reasons_of(out)) == 1, plan_of(out)


def test_a_case_of_many_branches(spark: SparkSession) -> None:
    """More branches than a stack has frames, if each branch were nested in the previous one."""
    branches = " ".join(f"WHEN {number} THEN {number % 7}" for number in range(3000))
    queries = {
        f"SELECT {HINT} k, ms FROM a JOIN b ON k = mk WHERE CASE j {branches} END = 3": True,
        f"SELECT {HINT} k, ms FROM a JOIN b ON k = mk AND CASE j + mj {branches} END = 3": True,
        f"SELECT {HINT} k, ms FROM a LEFT JOIN b ON k = mk AND CASE j + mj {branches} END = 3": False,
    }
    with configured(spark, spark_sql_codegen_wholeStage="false"):
        for query, is_pipelined in queries.items():
            out = assert_like_spark(spark, sql(spark, query))
            if is_pipelined:
                assert_pipelined(out, 1)
            else:
                assert_declined(
                    out, "a condition in addition to the keys of a left outer join, which only Spark evaluates: "
                )
            assert "planning it failed" not in plan_of(out)


def test_sixty_joins_of_files(spark: SparkSession, tmp_path: Path) -> None:
    """Each join is planned with all joins below it. Estimating all sizes again each time would cost minutes."""
    spark.range(50).write.parquet(f"{tmp_path}/ids")
    spark.read.parquet(f"{tmp_path}/ids").createOrReplaceTempView("ids")
    joins = [f"JOIN ids AS t{number} ON t{number - 1}.id = t{number}.id" for number in range(1, 61)]
    with configured(spark, spark_sql_adaptive_enabled="false", spark_sql_codegen_wholeStage="false"):
        with mode(spark, "auto"):
            out = spark.sql(f"SELECT count(*) FROM ids AS t0 {' '.join(joins)}")
            assert len(reasons_of(out)) == 60
        assert [row[0] for row in out.collect()] == [50]


# --- lists that are long ---


QUOTE = "'"


def listed(count: int, quote: str = "", suffix: str = "") -> str:
    return ", ".join(f"{quote}{3 * number}{quote}{suffix}" for number in range(count))


def test_long_lists(spark: SparkSession) -> None:
    """Lists longer than a stack is deep: of read columns, of values that only Spark computes, in compiled formulas."""
    queries = {
        f"SELECT {HINT} k, ms FROM a JOIN b ON k = mk WHERE k IN ({listed(4000)})": "filter and of more than 200 parts",
        f"SELECT {HINT} k, ms FROM a JOIN b ON k = mk WHERE initcap(s) IN ({listed(4000, QUOTE)})": "Spark (a filter",
        f"SELECT {HINT} k, ms FROM a LEFT JOIN b ON k = mk AND s IN ({listed(20_000, QUOTE)})": "fused",
        f"SELECT {HINT} k, ms FROM a JOIN b ON x + mj IN ({listed(4000, suffix='D')})": "fused",
    }
    for query, told in queries.items():
        out = assert_like_spark(spark, sql(spark, query))
        assert_pipelined(out, 1)
        assert told in plan_of(out)


def test_a_long_list_that_only_spark_looks_through(spark: SparkSession) -> None:
    both = f"trim('x' FROM concat(s, ms)) IN ({listed(4000, QUOTE)})"
    out = assert_like_spark(spark, sql(spark, f"SELECT {HINT} k, ms FROM a LEFT JOIN b ON k = mk AND {both}"))
    assert_declined(out, "a condition in addition to the keys of a left outer join, which only Spark evaluates: TRIM(")


VALUES = {
    "boolean": ("true", "false", "NULL"),
    "tinyint": ("-128", "0", "7", "NULL"),
    "int": ("-2147483648", "0", "7", "NULL"),
    "bigint": ("-9223372036854775808", "0", "7", "NULL"),
    "float": ("0.5", "'NaN'", "-0.0", "0.1", "'-Infinity'", "NULL"),
    "double": ("0.5", "'NaN'", "-0.0", "0.1", "'Infinity'", "NULL"),
    "decimal(12,2)": ("-3.00", "0", "1.1", "NULL"),
    "decimal(30,4)": ("-3", "0", "12345678901234567890.1", "NULL"),
    "date": ("'1582-10-04'", "'2024-02-29'", "NULL"),
    "timestamp": ("'1900-01-01'", "'2024-11-03 01:30:00'", "NULL"),
    "timestamp_ntz": ("'1900-01-01'", "'2024-11-03 01:30:00.000001'", "NULL"),
    "string": ("''", "'a'", "'a '", "'Ä'", "NULL"),
}


@pytest.mark.parametrize("place", ["LEFT JOIN b ON r = mj AND", "JOIN b ON r = mj WHERE"], ids=["condition", "filter"])
def test_what_is_in_a_list(spark: SparkSession, place: str, tmp_path: Path) -> None:
    """Values of every type, with and without nulls, in a join condition and in a filter of files."""
    queries = []
    for number, (name, values) in enumerate(VALUES.items()):
        cast = [f"CAST({value} AS {name})" for value in values]
        rows = ", ".join(f"({at}, {value})" for at, value in enumerate(cast))
        spark.sql(f"SELECT * FROM VALUES {rows} AS t(r, v)").write.parquet(f"{tmp_path}/{number}")
        spark.read.parquet(f"{tmp_path}/{number}").createOrReplaceTempView(f"v{number}")
        for test in (f"v IN ({', '.join(cast[1:])})", f"v NOT IN ({', '.join(cast[1:-1])})"):
            queries.append(f"SELECT {HINT} {number} AS n, r, string(v) AS v, ms FROM v{number} {place} {test}")
    # Spark turns longer lists into sets.
    with configured(spark, spark_sql_optimizer_inSetConversionThreshold=10 if "LEFT" in place else 1):
        out = assert_like_spark(spark, sql(spark, " UNION ALL ".join(queries)))
        assert_pipelined(out, *[1] * len(queries))
