"""TPC-H's 22 queries, planned by the session extension in auto mode against the same session with the mode off."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bench.harness import Bench, Case, Contestant, measure, record, verify
from bench.text_table import text_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES = """\
Measured: from asking for the plan of a query until Spark has every row of its result, to a noop sink; for pipelines
that includes running and publishing the build sides and building their indexes. Both modes take turns in one session
with Spark's defaults. Files are in the page cache. Rows of both are compared first. Only queries of which auto mode
plans a join are timed: the others have the same plan in both modes."""

_MODE = "spark.sparkext.mode"


def cases() -> list[Case]:
    """All queries in one table."""
    return [Case("tpch.queries", "the 22 queries, auto mode against off", _run)]


def _run(bench: Bench) -> None:
    from bench.spark_session import spark_session
    from sparkext import configure, tpch

    with spark_session(bench.threads, configure) as spark:
        folder = tpch.ensure_tables(bench.scale_factor, bench.data)
        for table in tpch.TABLES:
            spark.read.parquet(str(folder / f"{table}.parquet")).createOrReplaceTempView(table)
        rows = [_compare(bench, spark, number) for number in tpch.QUERIES]
    print(text_table(["query", "pipelines", "auto s", "off s", "auto/off"], rows))


def _compare(bench: Bench, spark: SparkSession, number: int) -> list[str]:
    """Time one query in both modes; return its line of the table."""
    from sparkext import tpch

    text = tpch.query(number)
    joins = _planned_joins(spark, text)
    if not joins:
        return [f"q{number:02}", "none", "", "", "same plan"]

    def contestant(mode: str) -> Contestant:
        def run() -> None:
            spark.conf.set(_MODE, mode)
            spark.sql(text).write.format("noop").mode("overwrite").save()

        def answer() -> object:
            spark.conf.set(_MODE, mode)
            return Counter(map(repr, spark.sql(text).collect()))

        return Contestant(f"q{number:02}, {mode}", run, answer, ours=mode == "auto")

    contestants = [contestant("auto"), contestant("off")]
    verify(contestants)
    timings = measure(contestants, bench.runs)
    record(bench, timings, 0)
    auto, off = (timing.median for timing in timings)
    return [f"q{number:02}", "+".join(map(str, joins)), f"{auto:.2f}", f"{off:.2f}", f"{auto / off:.2f}"]


def _planned_joins(spark: SparkSession, text: str) -> list[int]:
    from sparkext import spark_bridge

    spark.conf.set(_MODE, "auto")
    return [len(joins) for joins, _ in spark_bridge.planned_runs(spark.sql(text))]
