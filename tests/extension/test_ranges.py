"""Range joins planned by the extension against Spark's nested loops: shapes, join types, chains, scans, modes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkext
from tests.extension.test_joins import KEYS
from tests.support.frames import frame
from tests.support.planned_joins import assert_declined, assert_like_spark, assert_pipelined, mode, plan_of
from tests.support.sessions import configured

HINT = "/*+ PIPELINED_JOIN(spans) */"
MATCHED = "points.at >= spans.start AND points.at < spans.stop"

CONDITIONS = {
    "a point in an interval": MATCHED,
    "between": "points.at BETWEEN spans.start AND spans.stop",
    "overlap": "points.at <= spans.stop AND points.till >= spans.start",
    "a band": "points.at BETWEEN spans.start - 3 AND spans.start + 3",
    "a band of the other side": "spans.start BETWEEN points.at - 3 AND points.at + 3",
    "one inequality": "points.at < spans.start",
    "one from above": "points.at > spans.start",
    "an open interval": "points.at > spans.start AND points.at < spans.stop",
    "both columns from above": "points.at >= spans.start AND points.till > spans.stop",
    "rectangles": "points.at BETWEEN spans.start AND spans.stop AND points.till BETWEEN spans.start AND spans.stop",
    "two bounds of one kind": "spans.start >= points.at AND spans.start > points.till",
    "with equal keys": f"points.k = spans.k AND {MATCHED}",
    "with null-safe keys": f"points.k <=> spans.k AND {MATCHED}",
    "a narrower type": "points.small >= spans.start AND points.small < spans.stop",
    "with another condition": f"{MATCHED} AND points.name <> spans.label",
    "a third column": f"{MATCHED} AND points.small > spans.third",
}
KINDS = ("INNER", "LEFT", "LEFT SEMI", "LEFT ANTI", "RIGHT", "FULL")


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession) -> Iterator[None]:
    generator = random.Random(7)

    def column(count: int, low: int, high: int) -> list[int | None]:
        return [None if generator.random() < 0.08 else generator.randint(low, high) for _ in range(count)]

    at, start = column(60, 0, 60), column(50, -5, 65)
    points = frame(
        spark,
        3,
        id=range(60),
        at=pa.array(at, pa.int64()),
        till=pa.array([None if a is None else a + generator.randint(-1, 9) for a in at], pa.int64()),
        small=pa.array(column(60, 0, 60), pa.int16()),
        k=pa.array(column(60, 0, 3), pa.int32()),
        name=[f"n{number % 7}" for number in range(60)],
    )
    spans = frame(
        spark,
        2,
        start=pa.array(start, pa.int64()),
        stop=pa.array([None if s is None else s + generator.randint(-2, 12) for s in start], pa.int64()),
        third=pa.array(column(50, 0, 60), pa.int16()),
        k=pa.array(column(50, 0, 3), pa.int32()),
        label=[f"n{number % 5}" for number in range(50)],
    )
    points.cache().createOrReplaceTempView("points")
    spans.cache().createOrReplaceTempView("spans")
    yield
    for view in ("points", "spans"):
        spark.catalog.dropTempView(view)


EVERY_KIND = ("overlap", "a band", "with equal keys", "with another condition")


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in CONDITIONS for kind in (KINDS if name in EVERY_KIND else ("LEFT",))],
)
def test_every_shape_and_kind(spark: SparkSession, name: str, kind: str) -> None:
    hint = HINT if kind != "RIGHT" else HINT.replace("spans", "points")
    query = f"SELECT {hint} * FROM points {kind} JOIN spans ON {CONDITIONS[name]}"
    out = assert_like_spark(spark, lambda: spark.sql(query))
    assert_pipelined(out, 1)
    assert [join.index for join in sparkext.report(out).joins if join.index is not None] == ["range"]


@pytest.mark.parametrize("partitioned", ["always", "never"])
@pytest.mark.parametrize("name", ["one inequality", "one from above"])
@pytest.mark.parametrize("budget", [1, 100_000])
def test_a_full_join_whose_matches_overlap(spark: SparkSession, name: str, budget: int, partitioned: str) -> None:
    """Probe rows of one key match overlapping subsets of the same build rows: a prefix or a suffix of a list."""
    for key in ("points.k = spans.k", "points.k <=> spans.k"):
        query = f"SELECT {HINT} * FROM points FULL JOIN spans ON {key} AND {CONDITIONS[name]}"
        with configured(spark, spark_sparkext_morsel_maxRows=budget, spark_sparkext_partitioned=partitioned):
            assert_pipelined(assert_like_spark(spark, lambda query=query: spark.sql(query)), 1)


@pytest.mark.parametrize("budget", [1, 3])
@pytest.mark.parametrize("name", ["a point in an interval", "overlap", "a third column"])
def test_tiny_budgets(spark: SparkSession, name: str, budget: int) -> None:
    with configured(spark, **{"spark_sparkext_morsel_maxRows": budget}):
        for kind in ("LEFT", "LEFT ANTI"):
            query = f"SELECT {HINT} * FROM points {kind} JOIN spans ON {CONDITIONS[name]}"
            assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query)), 1)


def test_an_existence_join(spark: SparkSession) -> None:
    query = f"SELECT id FROM points WHERE name = 'n1' OR EXISTS (SELECT {HINT} 1 FROM spans WHERE {MATCHED})"
    assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query)), 1)


@pytest.mark.parametrize("name", KEYS)
def test_every_type(spark: SparkSession, name: str) -> None:
    arrow_type, values = KEYS[name]
    numbers = list(range(len(values)))
    one = frame(spark, 2, p=pa.array(values, arrow_type), a=numbers)
    other = frame(spark, 2, q=pa.array(values[::-1], arrow_type), r=pa.array(values, arrow_type), b=numbers)
    hinted = other.hint("pipelined_join")
    for condition in ("p > q", "p <= q", "p >= q AND p < r", "p <= q AND p >= r"):
        out = assert_like_spark(spark, lambda: one.join(hinted, F.expr(condition), "left"))
        assert_pipelined(out, 1)


def test_in_a_chain_with_equalities(spark: SparkSession) -> None:
    query = f"""SELECT /*+ PIPELINED_JOIN(a, spans, b) */ points.id, a.label, spans.start, b.label AS other
        FROM points JOIN spans a ON points.k = a.k LEFT JOIN spans ON {MATCHED}
        JOIN spans b ON spans.start <= b.start AND spans.stop >= b.start"""
    assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query)), 3)


def test_a_narrower_column_of_an_outer_join(spark: SparkSession) -> None:
    """Workers widen the column; a computed expression over rows that may be missing would be declined."""
    query = """SELECT /*+ PIPELINED_JOIN(a, spans) */ points.id, a.third, spans.start FROM points
        LEFT JOIN spans a ON points.k = a.k JOIN spans ON points.k = spans.k AND a.third < spans.start"""
    assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query)), 2)
    keyed = query.replace("a.third < spans.start", "a.third = spans.start")
    assert_pipelined(assert_like_spark(spark, lambda: spark.sql(keyed)), 2)


def test_what_is_no_range(spark: SparkSession) -> None:
    for condition in ("points.name <> spans.label", "points.at > 3"):
        query = f"SELECT {HINT} * FROM points LEFT JOIN spans ON {condition}"
        declined = assert_like_spark(spark, lambda: spark.sql(query))
        assert_declined(declined, "neither an equality nor a comparison between the two sides")


def test_bounds_that_may_fail_are_left_to_spark(spark: SparkSession) -> None:
    """Their errors depend on which pairs are evaluated."""
    query = f"SELECT {HINT} * FROM points LEFT JOIN spans ON points.at > 10 DIV spans.start"
    assert_declined(spark.sql(query), "neither an equality nor a comparison between the two sides")


def test_computed_columns_beside_equalities_are_left_to_a_filter(spark: SparkSession) -> None:
    query = f"SELECT {HINT} * FROM points JOIN spans ON points.k = spans.k AND points.at + 1 > spans.start"
    out = assert_like_spark(spark, lambda: spark.sql(query))
    assert_pipelined(out, 1)
    assert "Filter ((at" in plan_of(out)


def test_files_are_read_by_workers(spark: SparkSession, tmp_path: Path) -> None:
    for view in ("points", "spans"):
        table = spark.table(view).toArrow()
        pq.write_table(table, str(tmp_path / f"{view}.parquet"), row_group_size=16)
        spark.read.parquet(str(tmp_path / f"{view}.parquet")).createOrReplaceTempView(f"{view}_file")
    query = f"SELECT {HINT} * FROM points_file points JOIN spans_file spans ON {MATCHED} AND points.id > 3"
    out = assert_like_spark(spark, lambda: spark.sql(query))
    assert_pipelined(out, 1)
    assert "scan=fused" in plan_of(out) and "(fused)" in plan_of(out)
    assert [join.index for join in sparkext.report(out).joins if join.index is not None] == ["range"]


def test_auto_mode_weighs_pairs(spark: SparkSession) -> None:
    with mode(spark, "auto"):
        few = assert_like_spark(spark, lambda: spark.sql(f"SELECT * FROM points JOIN spans ON {MATCHED}"))
        assert_declined(few, "by the estimates a pipeline is not cheaper than Spark's own joins")
        spans = "(SELECT id * 100 AS start, id * 100 + 5 AS stop FROM range(20000))"
        many = spark.sql(f"SELECT id, start FROM range(3000000) JOIN {spans} ON id >= start AND id < stop")
        assert_pipelined(many, 1)
        assert many.count() == 100_000
        half = spark.sql(f"SELECT * FROM range(300000) JOIN {spans} ON id >= start")
        assert_declined(half, "by the estimates a pipeline is not cheaper than Spark's own joins")
