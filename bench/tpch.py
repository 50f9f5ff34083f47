"""TPC-H's 22 queries, planned by the session extension in auto mode against the same session with the mode off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING, NamedTuple

from bench.harness import Bench, Case, Contestant, measure, record, verify
from bench.text_table import text_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES = """\
Measured: from asking for the plan of a query until Spark has every row of its result, to a noop sink; for pipelines
that includes building what is not in the index cache from an earlier run, and running and publishing build sides that
workers do not read. Both modes take turns in one session with Spark's defaults. Files are in the page cache. Rows of
both are compared first. Only queries of which auto mode plans a join are timed: others have the same plan in both."""

TINY_QUERIES = (3, 12)
_MODE = "spark.sparkext.mode"
_NAMES = {"auto": "sparkext, auto mode", "off": "Spark, default plan"}


class Compared(NamedTuple):
    """One query: the joins of each of its pipelines, and the median seconds of both modes; none for the same plan."""

    name: str
    joins: Sequence[int]
    seconds: tuple[float, float] | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as long auto mode takes."""
        return None if self.seconds is None else self.seconds[0] / self.seconds[1]

    def cells(self) -> list[str]:
        """Lay out its line of the table."""
        joins = "+".join(map(str, self.joins)) or "none"
        if self.seconds is None:
            return [self.name, joins, "", "", "same plan"]
        return [self.name, joins, *(f"{seconds:.2f}" for seconds in self.seconds), f"{self.ratio:.2f}"]


def cases() -> list[Case]:
    """All queries in one table, as they are and under an aggregate."""
    return [
        Case("tpch.queries", "the 22 queries, auto mode against off", lambda bench: _run(bench, "{}")),
        Case(
            "tpch.aggregates",
            "the same, each under an aggregate of all of its columns",
            lambda bench: _run(bench, "SELECT count(*), bit_xor(xxhash64(*)) FROM ({})"),
            named=True,
        ),
    ]


def _run(bench: Bench, form: str) -> None:
    from bench.spark_session import spark_session
    from sparkext import configure, tpch

    with spark_session(bench.threads, configure) as spark:
        folder = tpch.ensure_tables(bench.scale_factor, bench.data)
        for table in tpch.TABLES:
            spark.read.parquet(str(folder / f"{table}.parquet")).createOrReplaceTempView(table)
        numbers = TINY_QUERIES if bench.tiny else tpch.QUERIES
        rows = [compare(bench, spark, f"q{number:02}", form.format(tpch.query(number))) for number in numbers]
    print_comparison(rows)


def print_comparison(queries: Sequence[Compared]) -> None:
    """Show the lines of all queries, and the mean of those that have another plan, of ratios as they are."""
    ratios = [query.ratio for query in queries if query.ratio is not None]
    print(text_table(["query", "pipelines", "auto s", "off s", "auto/off"], [query.cells() for query in queries]))
    if ratios:
        print(f"geometric mean of the {len(ratios)} that have another plan: {geometric_mean(ratios):.2f}")


def compare(bench: Bench, spark: SparkSession, name: str, text: str) -> Compared:
    """Time one query in both modes.

    The estimates leave tiny tables to Spark: then the same plan is tried in both modes.
    """
    joins = _planned_joins(spark, text)
    if not joins and not bench.tiny:
        return Compared(name, joins)

    def contestant(mode: str) -> Contestant:
        def run() -> None:
            spark.conf.set(_MODE, mode)
            spark.sql(text).write.format("noop").mode("overwrite").save()

        def answer() -> object:
            spark.conf.set(_MODE, mode)
            return Counter(map(repr, spark.sql(text).collect()))

        return Contestant(_NAMES[mode], run, answer, ours=mode == "auto")

    contestants = [contestant("auto"), contestant("off")]
    verify(contestants)
    timings = measure(bench, contestants)
    record(bench, timings, 0, part=name)
    auto, off = (timing.median for timing in timings)
    return Compared(name, joins, (auto, off))


def _planned_joins(spark: SparkSession, text: str) -> list[int]:
    from sparkext import spark_bridge

    spark.conf.set(_MODE, "auto")
    return [len(joins) for joins, _ in spark_bridge.planned_runs(spark.sql(text))]
