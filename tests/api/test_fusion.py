"""Consecutive transforms form one pipeline; any operator in between begins a new one. Both give Spark's rows."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import pipelined_join, report
from sparkext.joins.lineage import find_lineage
from tests.api.spark_checks import assert_pipelined, assert_same_rows, physical_plan, rows_of, spark_join
from tests.support.frames import frame, table
from tests.support.sessions import configured

_EXCHANGE = re.compile(r"^[\s:+\-*()\d]*Exchange\b", re.MULTILINE)


@pytest.fixture(scope="module")
def facts(spark: SparkSession) -> DataFrame:
    """Return a probe side without a shuffle. Its keys `a` and `b` have duplicates, nulls and unmatched values."""
    return spark.range(0, 40, 1, 3).selectExpr(
        "id", "if(id % 11 = 0, null, id % 7) as a", "if(id % 13 = 0, null, id % 5) as b", "concat('f', id) as f"
    )


@pytest.fixture(scope="module")
def first(spark: SparkSession) -> DataFrame:
    """Return a build side with key `x`; `y` is the probe key of the next join."""
    return frame(spark, x=[0, 1, 2, 2, None, 5, 9], y=[10, 11, None, 12, 13, 12, 10], p=list("ABCDEFG"))


@pytest.fixture(scope="module")
def second(spark: SparkSession) -> DataFrame:
    return frame(spark, z=[10, 12, 12, None, 99], q=list("pqrst"))


@pytest.fixture(scope="module")
def third(spark: SparkSession) -> DataFrame:
    return frame(spark, u=[0, 1, 3, None, 3], r=[0.5, None, 1.5, 2.5, 3.5])


FIRST = [("a", "x")]
SECOND = [("y", "z")]
THIRD = [("b", "u")]


def exchanges(df: DataFrame) -> int:
    return len(_EXCHANGE.findall(physical_plan(df)))


@pytest.mark.parametrize(
    ("how", "then"), [("inner", "inner"), ("inner", "left"), ("left", "semi"), ("semi", "anti"), ("anti", "inner")]
)
def test_two_transforms_are_one_pipeline(
    facts: DataFrame, first: DataFrame, third: DataFrame, how: str, then: str
) -> None:
    out = facts.transform(pipelined_join(first, FIRST, how)).transform(pipelined_join(third, THIRD, then))
    assert_pipelined(out, joins=2)
    assert exchanges(out) == 0
    assert assert_same_rows(spark_join(spark_join(facts, first, FIRST, how), third, THIRD, then), out)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_second_key_comes_from_the_first_build_side(
    facts: DataFrame, first: DataFrame, second: DataFrame, how: str
) -> None:
    """After a left join, an unmatched row has a null key: it matches nothing, or null with `<=>`."""
    for on in (SECOND, [("y", "<=>", "z")]):
        out = facts.transform(pipelined_join(first, FIRST, how)).transform(pipelined_join(second, on, "left"))
        assert_pipelined(out, joins=2)
        expected = spark_join(spark_join(facts, first, FIRST, how), second, on, "left")
        assert assert_same_rows(expected, out)
    assert "'p'" in str(rows_of(out.select("q"))), "no match through the first build side: this proves nothing"


def test_one_using_name_along_the_chain(spark: SparkSession) -> None:
    left = frame(spark, k=[1, 2, None, 3], v=[1, 2, 3, 4])
    one = frame(spark, K=(pa.int64(), [1, 2, None]), w=[5, 6, 7])
    two = frame(spark, k=(pa.int32(), [2, 3, None, 2]), x=[8, 9, 10, 11])
    out = left.transform(pipelined_join(one, "k", "left")).transform(pipelined_join(two, ["k"]))
    assert_pipelined(out, joins=2)
    assert assert_same_rows(left.join(one, "k", "left").join(two, ["k"]), out).total() == 3


def test_five_joins(facts: DataFrame, first: DataFrame, second: DataFrame, third: DataFrame) -> None:
    fourth = third.selectExpr("u as s", "r as t")
    steps: list[tuple[DataFrame, Any, str]] = [
        (first, FIRST, "left"),
        (second, SECOND, "left"),
        (third, THIRD, "inner"),
        (fourth, [("a", "<=>", "s")], "semi"),
        (second.selectExpr("z as zz", "q as qq"), [("y", "zz"), ("q", "qq")], "anti"),
    ]
    expected = out = facts
    for other, on, how in steps:
        expected = spark_join(expected, other, on, how)
        out = out.transform(pipelined_join(other, on, how))
        assert_pipelined(out)
    assert_pipelined(out, joins=5)
    assert assert_same_rows(expected, out)
    told = report(out).joins
    assert [join.operator for join in told[:-1]] == [
        "left on a = x",
        "left on y = z",
        "inner on b = u",
        "semi on a <=> s",
        "anti on y = zz, q = qq",
    ]


def test_each_join_keeps_its_own_algorithm(facts: DataFrame, first: DataFrame, third: DataFrame) -> None:
    out = facts.transform(pipelined_join(first, FIRST, algorithm="sort_merge"))
    out = out.transform(pipelined_join(third, THIRD, algorithm="hash"))
    assert_pipelined(out, joins=2)
    assert_same_rows(spark_join(spark_join(facts, first, FIRST, "inner"), third, THIRD, "inner"), out)
    assert [join.index for join in report(out).joins] == ["ordered", "dense", None]


def test_build_sides_from_pandas_and_pyarrow_in_one_chain(facts: DataFrame, first: DataFrame, third: DataFrame) -> None:
    local = table(u=[0, 1, 3, None, 3], r=[0.5, None, 1.5, 2.5, 3.5])
    out = facts.transform(pipelined_join(first.toPandas(), FIRST)).transform(pipelined_join(local, THIRD))
    assert_pipelined(out, joins=2)
    want = spark_join(spark_join(facts, first.drop("y"), FIRST, "inner"), third, THIRD, "inner")
    # pandas stores integers with nulls as doubles
    got = out.withColumn("x", F.col("x").cast("bigint")).drop("y")
    assert_same_rows(want, got)


BETWEEN: dict[str, Callable[[DataFrame], DataFrame]] = {
    "filter": lambda df: df.where("id % 2 = 0"),
    "filter on a build column": lambda df: df.where("p <> 'A'"),
    "select": lambda df: df.select("b", "p", "y"),
    "withColumn that changes a key": lambda df: df.withColumn("b", F.col("b") + 1),
    "withColumnRenamed": lambda df: df.withColumnRenamed("f", "g"),
    "drop": lambda df: df.drop("f", "id"),
    "alias": lambda df: df.alias("m"),
    "distinct": lambda df: df.distinct(),
    "dropDuplicates": lambda df: df.dropDuplicates(["b"]).select("b"),
    "limit above the size": lambda df: df.limit(10_000),
    "repartition": lambda df: df.repartition(2),
    "coalesce": lambda df: df.coalesce(1),
    "select of everything": lambda df: df.select("*"),
    "sort": lambda df: df.sort("id"),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_anything_in_between_starts_a_new_pipeline(
    facts: DataFrame, first: DataFrame, third: DataFrame, name: str
) -> None:
    step = BETWEEN[name]
    middle = facts.transform(pipelined_join(first, FIRST)).transform(step)
    out = middle.transform(pipelined_join(third, THIRD, "left"))
    assert_pipelined(out, joins=1, crossings=2)
    assert assert_same_rows(spark_join(step(spark_join(facts, first, FIRST, "inner")), third, THIRD, "left"), out)


def test_a_second_pass_through_a_function_that_changes_nothing_still_fuses(
    facts: DataFrame, first: DataFrame, third: DataFrame
) -> None:
    out = facts.transform(pipelined_join(first, FIRST)).transform(lambda df: df)
    out = out.transform(pipelined_join(third, THIRD))
    assert_pipelined(out, joins=2)


@pytest.mark.parametrize("keep", ["cache", "persist", "persist on disk"])
def test_a_cached_intermediate_is_read_from_the_cache(
    facts: DataFrame, first: DataFrame, third: DataFrame, keep: str
) -> None:
    middle = facts.transform(pipelined_join(first, FIRST))
    expected = spark_join(spark_join(facts, first, FIRST, "inner"), third, THIRD, "inner")
    same = {
        "cache": middle.cache,
        "persist": middle.persist,
        "persist on disk": lambda: middle.persist(StorageLevel.DISK_ONLY),
    }[keep]()
    assert same is middle
    try:
        over_cache = middle.transform(pipelined_join(third, THIRD))
        assert "InMemoryTableScan" in physical_plan(over_cache)
        lineage = find_lineage(over_cache)
        assert lineage is not None and len(lineage.spec.joins) == 1
        rows = assert_same_rows(expected, over_cache)
        assert rows
        assert_same_rows(expected, over_cache)
    finally:
        middle.unpersist(blocking=True)
    # After unpersist, the older DataFrame still works, and a new one is fused again.
    assert rows_of(over_cache) == rows
    fused = middle.transform(pipelined_join(third, THIRD))
    assert "InMemoryTableScan" not in physical_plan(fused)
    assert_pipelined(fused, joins=2)
    assert_same_rows(expected, fused)


def test_caching_after_the_continuation_was_made(facts: DataFrame, first: DataFrame, third: DataFrame) -> None:
    middle = facts.transform(pipelined_join(first, FIRST))
    out = middle.transform(pipelined_join(third, THIRD))
    expected = spark_join(spark_join(facts, first, FIRST, "inner"), third, THIRD, "inner")
    middle.cache()
    try:
        assert middle.count() == spark_join(facts, first, FIRST, "inner").count()
        assert_pipelined(out, joins=2)
        assert_same_rows(expected, out)
    finally:
        middle.unpersist(blocking=True)


def test_a_cached_probe_side(facts: DataFrame, first: DataFrame, third: DataFrame) -> None:
    kept = facts.select("*").cache()
    try:
        out = kept.transform(pipelined_join(first, FIRST)).transform(pipelined_join(third, THIRD))
        assert "InMemoryTableScan" in physical_plan(out)
        assert_pipelined(out, joins=2)
        assert_same_rows(spark_join(spark_join(facts, first, FIRST, "inner"), third, THIRD, "inner"), out)
    finally:
        kept.unpersist(blocking=True)


def test_one_callable_on_two_frames(facts: DataFrame, first: DataFrame) -> None:
    join = pipelined_join(first, FIRST, "left")
    other = facts.selectExpr("a * 2 as a", "'other' as source")
    for left in (facts, other):
        out = left.transform(join)
        assert_pipelined(out, joins=1)
        assert assert_same_rows(spark_join(left, first, FIRST, "left"), out)


def test_one_callable_twice_in_a_chain(spark: SparkSession) -> None:
    """A semi join adds no column, so that the same transform can be applied twice."""
    left = frame(spark, k=[1, 2, 2, None, 3], v=list("abcde"))
    join = pipelined_join(frame(spark, k=[2, 2, 3]), "k", "semi")
    out = left.transform(join).transform(join)
    assert_pipelined(out, joins=2)
    assert assert_same_rows(left.where("k in (2, 3)"), out).total() == 3


def test_two_continuations_of_one_intermediate(
    facts: DataFrame, first: DataFrame, second: DataFrame, third: DataFrame
) -> None:
    middle = facts.transform(pipelined_join(first, FIRST))
    one = middle.transform(pipelined_join(second, SECOND, "left"))
    two = middle.transform(pipelined_join(third, THIRD, "anti"))
    filtered = middle.where("id > 5").transform(pipelined_join(third, THIRD))
    joined = spark_join(facts, first, FIRST, "inner")
    assert_pipelined(middle, joins=1)
    assert_pipelined(one, joins=2)
    assert_pipelined(two, joins=2)
    assert_pipelined(filtered, joins=1, crossings=2)
    assert_same_rows(spark_join(joined, third, THIRD, "anti"), two)
    assert_same_rows(spark_join(joined, second, SECOND, "left"), one)
    assert_same_rows(spark_join(joined.where("id > 5"), third, THIRD, "inner"), filtered)
    assert_same_rows(joined, middle)


def test_the_two_continuations_joined_with_each_other(facts: DataFrame, first: DataFrame, third: DataFrame) -> None:
    """A pipeline is the build side of another pipeline with the same beginning."""
    middle = facts.transform(pipelined_join(first, FIRST))
    build = middle.transform(pipelined_join(third, THIRD, "semi")).selectExpr("id as other_id", "p as other_p")
    out = middle.transform(pipelined_join(build, [("id", "other_id")]))
    assert_pipelined(out, joins=2)
    joined = spark_join(facts, first, FIRST, "inner")
    expected = spark_join(joined, third, THIRD, "semi").selectExpr("id as other_id", "p as other_p")
    assert assert_same_rows(spark_join(joined, expected, [("id", "other_id")], "inner"), out)


# A right or full join begins a pipeline: one MapInArrow for itself, one that reads the build side's keys, and one
# Exchange. Pipelines before it add their own.
PRESERVING: list[tuple[list[str], int, int, int]] = [
    (["right"], 1, 2, 1),
    (["full"], 1, 2, 1),
    (["inner", "right"], 1, 3, 1),
    (["left", "inner", "full"], 1, 3, 1),
    (["right", "inner"], 2, 2, 1),
    (["full", "left", "semi"], 3, 2, 1),
    (["inner", "full", "left"], 2, 3, 1),
    (["right", "full"], 1, 4, 2),
    (["full", "inner", "right", "anti"], 2, 4, 2),
]


@pytest.mark.parametrize(("kinds", "joins", "crossings", "shuffles"), PRESERVING, ids=lambda value: str(value))
def test_right_and_full_joins_in_a_chain(
    spark: SparkSession, facts: DataFrame, kinds: list[str], joins: int, crossings: int, shuffles: int
) -> None:
    expected = out = facts.select("a", "b")
    for number, how in enumerate(kinds):
        other = frame(
            spark,
            **{
                f"x{number}": (pa.int64(), [0, 1, 1, None, 3, 40 + number]),
                f"v{number}": list(range(number, number + 6)),
            },
        )
        # From the second join on, keys are from a build side, and null for rows without a match.
        key = "a" if number == 0 else next(name for name in reversed(expected.columns) if name[0] == "x")
        on = [(key, f"x{number}")]
        expected = spark_join(expected, other, on, how)
        out = out.transform(pipelined_join(other, on, how))
    assert_pipelined(out, joins=joins, crossings=crossings)
    assert exchanges(out) == shuffles, physical_plan(out)
    assert assert_same_rows(expected, out)


def test_settings_between_two_transforms(
    spark: SparkSession, facts: DataFrame, first: DataFrame, third: DataFrame
) -> None:
    """A fused pipeline uses the settings at its last transform."""
    expected = spark_join(spark_join(facts, first, FIRST, "inner"), third, THIRD, "left")
    middle = facts.transform(pipelined_join(first, FIRST))
    with configured(spark, {"spark.sparkext.morsel.maxRows": 1}):
        out = middle.transform(pipelined_join(third, THIRD, "left"))
    assert_pipelined(out, joins=2)
    assert_same_rows(expected, out)
    assert {join.budget_max for join in report(out).joins} == {1}
    assert_same_rows(spark_join(facts, first, FIRST, "inner"), middle)
    assert {join.budget_max for join in report(middle).joins} == {131_072}


def collect_garbage(spark: SparkSession) -> None:
    """Collect garbage in Python and then in the JVM, whose cleaner runs in the background."""
    gc.collect()
    spark._jvm.System.gc()
    time.sleep(0.5)
    spark._jvm.System.gc()


def test_build_sides_live_as_long_as_a_frame_that_needs_them(
    spark: SparkSession, facts: DataFrame, first: DataFrame, third: DataFrame
) -> None:
    expected = spark_join(spark_join(facts, first, FIRST, "inner"), third, THIRD, "left")
    middle = facts.transform(pipelined_join(first, FIRST))
    out = middle.transform(pipelined_join(third, THIRD, "left"))
    lineage = find_lineage(out)
    assert lineage is not None
    files = [Path(source.broadcast._path) for source in lineage.sources]  # type: ignore[attr-defined]
    derived = out.select("*")
    assert find_lineage(derived) is None
    del middle, out, lineage
    collect_garbage(spark)
    # Publishing deletes the files of build sides that are no longer referenced.
    other = facts.transform(pipelined_join(first, FIRST))
    assert all(file.exists() for file in files)
    assert_pipelined(derived)
    assert_same_rows(expected, derived)
    collect_garbage(spark)
    other = other.transform(pipelined_join(third, THIRD))
    assert_same_rows(expected, derived)
    assert_same_rows(expected, derived.where("true"))


def test_files_of_a_forgotten_pipeline_are_deleted(spark: SparkSession, facts: DataFrame, first: DataFrame) -> None:
    out = facts.transform(pipelined_join(first, FIRST))
    lineage = find_lineage(out)
    assert lineage is not None
    file = Path(lineage.sources[0].broadcast._path)  # type: ignore[attr-defined]
    assert out.count()
    assert list(file.parent.glob(f"{file.name}.*.index")), "no index beside the build file: this proves nothing"
    del out, lineage
    kept = []
    for _ in range(10):
        collect_garbage(spark)
        kept.append(facts.transform(pipelined_join(first, FIRST)))
        if not file.exists():
            break
    assert not list(file.parent.glob(f"{file.name}*"))
    assert kept[-1].count()


@pytest.fixture(scope="module")
def pipeline(facts: DataFrame, first: DataFrame, third: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Yield a pipeline of two joins, and the same joins of Spark."""
    out = facts.transform(pipelined_join(first, FIRST)).transform(pipelined_join(third, THIRD, "left"))
    assert_pipelined(out, joins=2)
    return out, spark_join(spark_join(facts, first, FIRST, "inner"), third, THIRD, "left")


def test_limit_on_top(pipeline: tuple[DataFrame, DataFrame]) -> None:
    out, expected = pipeline
    limited = out.limit(7)
    assert_pipelined(limited)
    rows, every = rows_of(limited), rows_of(expected)
    assert rows.total() == 7
    assert rows <= every
    assert rows_of(out.limit(0)).total() == 0
    assert rows_of(out.limit(10_000)) == every
    assert len(out.take(3)) == 3
    assert_same_rows(expected, out)


def test_write_and_read_parquet(spark: SparkSession, pipeline: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    out, expected = pipeline
    path = str(tmp_path / "out.parquet")
    out.write.parquet(path)
    assert rows_of(spark.read.parquet(path)) == rows_of(expected)
    assert report(out).joins[-1].rows_out == expected.count()


def test_partitioned_write(spark: SparkSession, pipeline: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    out, expected = pipeline
    path = str(tmp_path / "parts.parquet")
    out.write.partitionBy("p").parquet(path)
    assert rows_of(spark.read.parquet(path).select(expected.columns)) == rows_of(expected)


def test_temp_view_and_sql(spark: SparkSession, pipeline: tuple[DataFrame, DataFrame]) -> None:
    out, expected = pipeline
    query = "select p, count(*) as n, sum(r) as total, max(f) as f from {} where id > 3 group by p having count(*) > 1"
    out.createOrReplaceTempView("piped")
    expected.createOrReplaceTempView("plain")
    try:
        through = spark.sql(query.format("piped"))
        assert_pipelined(through)
        assert assert_same_rows(spark.sql(query.format("plain")), through)
        # The view is not a pipeline to extend, but can be the probe side of one.
        again = spark.table("piped").transform(pipelined_join(table(id=[1, 2, 3]), "id", "semi"))
        assert_pipelined(again, joins=1, crossings=2)
        assert_same_rows(expected.where("id in (1, 2, 3)"), again)
    finally:
        spark.catalog.dropTempView("piped")
        spark.catalog.dropTempView("plain")


def test_union_of_two_pipelines(
    pipeline: tuple[DataFrame, DataFrame], facts: DataFrame, first: DataFrame, third: DataFrame
) -> None:
    out, expected = pipeline
    anti = facts.transform(pipelined_join(first, FIRST, "left")).transform(pipelined_join(third, THIRD))
    other = spark_join(spark_join(facts, first, FIRST, "left"), third, THIRD, "inner")
    both = out.unionByName(anti)
    assert_pipelined(both, crossings=2)
    assert_same_rows(expected.unionByName(other), both)
    twice = out.union(out)
    assert_pipelined(twice, crossings=2)
    assert_same_rows(expected.union(expected), twice)
    after = both.transform(pipelined_join(table(id=[1, 2, 3], n=["x", "y", "z"]), "id"))
    assert_pipelined(after, joins=1, crossings=3)
    assert {row.id for row in after.collect()} == {row.id for row in expected.union(other).collect()} & {1, 2, 3}


def test_group_sort_window_and_self_join_on_top(pipeline: tuple[DataFrame, DataFrame]) -> None:
    out, expected = pipeline

    def grouped(df: DataFrame) -> DataFrame:
        return df.groupBy("p", "u").agg(F.count("*").alias("n"), F.collect_set("f").alias("fs")).drop("fs")

    assert_pipelined(grouped(out))
    assert_same_rows(grouped(expected), grouped(out))
    assert [tuple(row) for row in out.sort("id", "p", "u", "r").collect()] == [
        tuple(row) for row in expected.sort("id", "p", "u", "r").collect()
    ]
    # Spark's own join of a pipeline with itself: two readers of one build side.
    one = out.groupBy("p").count().join(out.select("p", "id"), "p")
    assert_same_rows(expected.groupBy("p").count().join(expected.select("p", "id"), "p"), one)


def test_columns_that_nobody_reads(pipeline: tuple[DataFrame, DataFrame]) -> None:
    out, expected = pipeline
    assert_pipelined(out.select("r"))
    assert_same_rows(expected.select("r"), out.select("r"))
    assert out.count() == expected.count()
    assert_same_rows(expected.where("r > 1 and a = 2").select("id"), out.where("r > 1 and a = 2").select("id"))


def test_a_pipeline_as_spark_runs_it_without_adaptive_execution(
    spark: SparkSession, facts: DataFrame, first: DataFrame, third: DataFrame
) -> None:
    with configured(spark, {"spark.sql.adaptive.enabled": "false"}):
        out = facts.transform(pipelined_join(first, FIRST, "full")).transform(pipelined_join(third, THIRD, "left"))
        assert_pipelined(out, joins=2, crossings=2)
        assert exchanges(out) == 1
        assert_same_rows(spark_join(spark_join(facts, first, FIRST, "full"), third, THIRD, "left"), out)
