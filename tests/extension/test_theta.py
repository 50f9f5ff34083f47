"""Joins on formulas, planned by the extension, compared with Spark's nested loops: coverage, types, errors, chains."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

import sparkext
from tests.support.frames import frame
from tests.support.planned_joins import assert_declined, assert_like_spark, assert_pipelined, mode, plan_of
from tests.support.sessions import configured

HINT = "/*+ PIPELINED_JOIN(b) */"

COVERED = {
    "integers": "a.i + b.i > 150 AND a.l * b.n % 7 = 3",
    "small integers": "a.t * b.t <> a.s - b.s",
    "doubles": "(a.x * a.x + b.x * b.x) / 2 < 10",
    "floats": "a.f * b.f >= 20 AND -a.f < b.f",
    "decimals": "a.p * 2 - b.p < 5.5 AND a.p + b.p > 3",
    "decimals and doubles": "a.p > b.x * a.x",
    "decimals and integers": "a.p > b.i + a.i",
    "days": "datediff(a.d, b.d) % 5 = 1 AND date_add(a.d, b.i) > date_sub(b.d, a.i)",
    "timestamps": "a.ts <> b.ts AND a.i + b.i > 90",
    "nulls": "a.n + b.n IS NULL OR coalesce(a.n, b.n) IS NOT DISTINCT FROM least(a.i, b.i)",
    "booleans": "a.q = (b.i > a.i) AND NOT (a.q AND a.n < b.n)",
    "choices": "CASE WHEN a.n > b.n THEN a.i - b.i > 20 WHEN a.n IS NULL THEN b.i = 3 ELSE if(a.q, a.i, b.i) > 40 END",
    "lists": "a.i + b.i IN (50, 60, NULL, 70)",
    "roots": "sqrt(a.x * a.x + b.x * b.x) <= 5 OR abs(a.i - b.i) = greatest(a.n, b.n, 3)",
    "one of many conditions is Spark's": "a.x + b.x > 10 AND concat(a.name, b.name) < 'n3'",
}
WITH_RANGES = {
    "a band of integers": "abs(a.i - b.i) <= 2",
    "a band of longs": "abs(a.l - b.l) < 30",
    "a band of doubles": "abs(a.x - b.x) <= 0.3",
    "a band of floats": "3 >= abs(b.f - a.f)",
    "a band of days": "abs(datediff(a.d, b.d)) <= 3",
    "a band of the build side's width": "abs(a.x - b.x) < b.w",
    "a band of the probe side's width": "a.w >= abs(a.x - b.x)",
    "an interval and a formula": "a.i BETWEEN b.i - 3 AND b.i + 3 AND a.x * b.x > 2",
}
KINDS = ("INNER", "LEFT", "LEFT SEMI", "LEFT ANTI", "RIGHT")
IN_EVERY_KIND = ("doubles", "nulls", "booleans")  # compiling a formula costs each worker half a second


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession) -> Iterator[None]:
    generator = random.Random(11)

    def column(count: int, kind: pa.DataType, high: int) -> pa.Array:
        values = [None if generator.random() < 0.1 else generator.randint(0, high) for _ in range(count)]
        return pa.array(values, pa.int64()).cast(kind)

    def doubles(count: int, kind: pa.DataType) -> pa.Array:
        # Multiples of 0.1, so that differences are exactly at the bounds of bands, and next to them.
        values = [None if generator.random() < 0.1 else generator.randint(-80, 80) * 0.1 for _ in range(count)]
        return pa.array([*values[:-3], math.nan, math.inf, -0.0], kind)

    for name, count in (("a", 70), ("b", 50)):
        columns = {
            "t": column(count, pa.int8(), 11),
            "s": column(count, pa.int16(), 100),
            "i": column(count, pa.int32(), 90),
            "l": column(count, pa.int64(), 900),
            "n": column(count, pa.int64(), 30),
            "f": doubles(count, pa.float32()),
            "x": doubles(count, pa.float64()),
            "w": column(count, pa.float64(), 2),
            "p": column(count, pa.int64(), 40).cast(pa.decimal128(19, 0)).cast(pa.decimal128(10, 2)),
            "d": column(count, pa.int32(), 400).cast(pa.date32()),
            "ts": column(count, pa.int64(), 5).cast(pa.timestamp("us", "UTC")),
            "q": pa.array([generator.choice([None, True, False]) for _ in range(count)]),
            "name": [f"n{number % 7}" for number in range(count)],
        }
        frame(spark, 1, id=range(count), **columns).cache().createOrReplaceTempView(name)
    yield
    for name in ("a", "b"):
        spark.catalog.dropTempView(name)


def _all_of(conditions: dict[str, str], kind: str) -> str:
    """Return one query for all conditions. Running all in one job costs little more than running one."""
    hint = HINT.replace("b", "a") if kind == "RIGHT" else HINT
    columns = "a.id" if kind in ("LEFT SEMI", "LEFT ANTI") else "a.id, b.id"
    return " UNION ALL ".join(
        f"SELECT {hint} '{name.replace(chr(39), '')}', {columns} FROM a {kind} JOIN b ON {condition}"
        for name, condition in conditions.items()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_covered(spark: SparkSession, kind: str) -> None:
    covered = {
        name: text
        for name, text in COVERED.items()
        if kind == "INNER" or name in IN_EVERY_KIND or (kind == "LEFT" and "concat" not in text)
    }
    out = assert_like_spark(spark, lambda: spark.sql(_all_of(covered, kind)))
    assert_pipelined(out, *[1] * len(covered))


@pytest.mark.parametrize("kind", KINDS)
def test_formulas_beside_ranges(spark: SparkSession, kind: str) -> None:
    out = assert_like_spark(spark, lambda: spark.sql(_all_of(WITH_RANGES, kind)))
    assert_pipelined(out, *[1] * len(WITH_RANGES))


def test_formulas_beside_equal_keys(spark: SparkSession) -> None:
    keyed = {name: f"a.t = b.t AND ({COVERED[name]})" for name in (*IN_EVERY_KIND, "integers", "decimals")}
    out = assert_like_spark(spark, lambda: spark.sql(_all_of(keyed, "LEFT")))
    assert_pipelined(out, *[1] * len(keyed))


@pytest.mark.parametrize("kind", ["float", "double"])
def test_bands_without_ends(spark: SparkSession, kind: str) -> None:
    """Everything is at most NaN, and infinities are within a band of infinite width."""
    arrow_type = pa.float32() if kind == "float" else pa.float64()
    values = [math.nan, math.inf, -math.inf, -0.0, 1.5, None, 1e38]
    pairs = [(value, width) for value in values for width in [*values, -1.0]]
    columns = {"v": [value for value, _ in pairs], "w": [width for _, width in pairs]}
    frame(spark, 1, **{name: pa.array(column, arrow_type) for name, column in columns.items()}).createOrReplaceTempView(
        "c"
    )
    frame(spark, 1, v=pa.array(values, arrow_type)).createOrReplaceTempView("e")
    hint = HINT.replace("b", "e")
    queries = [
        f"SELECT {hint} c.v, c.w, e.v FROM c JOIN e ON abs(c.v - e.v) {test}"
        for test in ("<= c.w", "< c.w", f"<= {kind}('infinity')", f"< {kind}('nan')")
    ]
    out = assert_like_spark(spark, lambda: spark.sql(" UNION ALL ".join(queries)))
    assert_pipelined(out, 1, 1, 1, 1)


def test_what_may_fail_waits_for_its_guard(spark: SparkSession) -> None:
    guarded = "a.name <> b.name AND 10 / (a.id % 7 - b.id % 7) > 1"
    for kind in ("INNER", "LEFT"):
        query = f"SELECT {HINT} a.id, b.id FROM a {kind} JOIN b ON {guarded}"
        assert_declined(assert_like_spark(spark, lambda text=query: spark.sql(text)), "neither an equality")  # type: ignore[misc]


def test_formulas_too_large_to_compile(spark: SparkSession) -> None:
    branches = " ".join(f"WHEN a.i + b.i = {number} THEN a.x < {number}" for number in range(60))
    query = f"SELECT {HINT} a.id, b.id FROM a JOIN b ON CASE {branches} END"
    assert_declined(spark.sql(query), "neither an equality")


@pytest.mark.parametrize("kind", ["INNER", "LEFT"])
def test_formulas_too_many_to_compile(spark: SparkSession, kind: str) -> None:
    """No single conjunct is too large; all together are."""
    many = " AND ".join(f"a.i + b.i <> {number}" for number in range(60))
    query = f"SELECT {HINT} a.id, b.id FROM a {kind} JOIN b ON {many}"
    assert_declined(assert_like_spark(spark, lambda: spark.sql(query)), "a formula too large to compile")


def test_decimals_that_count_thousands(spark: SparkSession) -> None:
    one, other = "CAST(a.i AS DECIMAL(9, 0))", "CAST(b.i AS DECIMAL(9, 0))"
    query = f"SELECT {HINT} a.id, b.id FROM a JOIN b ON {one} * 1E3BD > {other} + {one}"
    with configured(spark, spark_sql_legacy_allowNegativeScaleOfDecimal="true"):
        assert_declined(assert_like_spark(spark, lambda: spark.sql(query)), "neither an equality")


def test_an_existence_join(spark: SparkSession) -> None:
    query = f"SELECT id FROM a WHERE i < 20 OR EXISTS (SELECT {HINT} 1 FROM b WHERE a.x * b.x > a.i)"
    assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query)), 1)


def test_subqueries_that_spark_copies(spark: SparkSession) -> None:
    """Spark copies NOT IN to an equal column, which gives two build sides with the same column name."""
    frame(spark, 1, n=[0, 1, 2, None], name=["q", "r", "s", "t"]).createOrReplaceTempView("copied")
    subquery = "SELECT n FROM copied WHERE n IN (1, 2)"
    among = f"one.n NOT IN ({subquery}) OR one.name <> two.name"
    query = f"SELECT one.name FROM copied one JOIN copied two ON one.n = two.n WHERE {among}"
    with configured(spark, spark_sparkext_debug_force="true"):
        out = assert_like_spark(spark, lambda: spark.sql(query))
        assert_pipelined(out, 3)
    assert [row.name for row in out.collect()] == ["q"]


def test_which_index(spark: SparkSession) -> None:
    for condition, index in (("a.x * b.x > 7", "all rows"), ("abs(a.x - b.x) < 0.1", "range")):
        out = spark.sql(f"SELECT {HINT} a.id, b.id FROM a JOIN b ON {condition}")
        out.collect()
        assert [join.index for join in sparkext.report(out).joins[:-1]] == [index]
    # A comparison that about half of all pairs satisfy is evaluated as part of the formula.
    assert_pipelined(spark.sql(f"SELECT {HINT} a.id, b.id FROM a JOIN b ON a.x < b.x AND a.x * b.x > 7"), 1)


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize(
    "formula",
    ["a.big + b.big > 0", "a.big * b.big > 0", "a.small - b.small = 1", "abs(a.big - b.big) < 5", "-a.big < b.big"],
)
def test_overflow(spark: SparkSession, ansi: bool, formula: str) -> None:
    extremes = [-(2**63), 2**63 - 1, 0, 1, None]
    query = f"SELECT {HINT} * FROM x a JOIN x b ON {formula}"
    with configured(spark, **{"spark_sql_ansi_enabled": str(ansi).lower()}):
        frame(
            spark, 1, big=pa.array(extremes, pa.int64()), small=pa.array([-128, 127, 0, 1, None], pa.int8())
        ).createOrReplaceTempView("x")
        if not ansi:
            assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query)), 1)
        elif "abs" not in formula:  # abs is not evaluated for values that are far apart
            for setting in ("hint", "off"):
                with mode(spark, setting), pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"):
                    spark.sql(query).collect()


def test_division_by_zero(spark: SparkSession) -> None:
    query = f"SELECT {HINT} a.id, b.id FROM a JOIN b ON {{}}"
    failing = "a.x / (b.i - b.i) > 1"
    for setting in ("hint", "off"):
        with mode(spark, setting), pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
            spark.sql(query.format(failing)).collect()
    with configured(spark, **{"spark_sql_ansi_enabled": "false"}):
        for formula in (failing, "a.i % (b.i - b.i) = 0 OR a.i + b.i = 10"):
            assert_pipelined(assert_like_spark(spark, lambda text=formula: spark.sql(query.format(text))), 1)  # type: ignore[misc]
    guarded = "b.i <> 0 AND a.i % b.i = 1 AND if(a.i = 0, false, b.x / a.i > 0)"
    assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query.format(guarded))), 1)


def test_what_is_declined(spark: SparkSession) -> None:
    neither = "neither an equality nor a comparison between the two sides, nor a formula"
    for condition, reason in {
        "sin(a.x * b.x) < 0.5": neither,
        "a.name <> b.name": neither,
        "a.x > 3 OR b.name = 'n1'": neither,
        "CAST(a.p AS DECIMAL(30, 2)) + b.p > 3": neither,
    }.items():
        query = f"SELECT {HINT} a.id, b.id FROM a JOIN b ON {condition}"
        assert_declined(assert_like_spark(spark, lambda text=query: spark.sql(text)), reason)  # type: ignore[misc]
    partly = f"SELECT {HINT} * FROM a LEFT JOIN b ON a.x + b.x > 1 AND pow(a.x, b.x) > 2"
    assert_declined(
        spark.sql(partly), "a condition in addition to the keys of a left outer join, which only Spark evaluates: pow("
    )


@pytest.mark.parametrize("budget", [1, 1000])
def test_chains(spark: SparkSession, budget: int) -> None:
    query = f"""
        SELECT {HINT} /*+ PIPELINED_JOIN(c) */ a.id, b.id, c.id FROM a
        LEFT JOIN b ON a.x * b.x > 30
        JOIN a c ON a.x + b.x + c.x > 19 AND coalesce(b.i, 0) < c.i"""
    with configured(spark, **{"spark_sparkext_morsel_maxRows": budget}):
        assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query)), 2)
    failing = query.replace("a.x * b.x", "a.l * b.l")  # the upper join must not run before the lower filter
    assert_pipelined(spark.sql(failing.replace("coalesce(b.i, 0) < c.i", "a.l * c.l > 7")), 1, 1)


def test_files_in_auto_mode(spark: SparkSession, tmp_path: Path) -> None:
    generator = random.Random(3)
    for name, count in (("many", 60_000), ("few", 6_000)):
        values = [generator.random() for _ in range(count)]
        pq.write_table(pa.table({"id": range(count), "v": values}), tmp_path / f"{name}.parquet")
        spark.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView(name)
    query = "SELECT count(*), sum(many.id), sum(few.id) FROM many JOIN few ON abs(many.v * few.v - 0.5) < 1e-5"
    with mode(spark, "auto"):
        out = assert_like_spark(spark, lambda: spark.sql(query))
        assert_pipelined(out, 1)
        assert plan_of(out).count("fused") >= 2, plan_of(out)
