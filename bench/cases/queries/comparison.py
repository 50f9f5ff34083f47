"""Complete SQL queries over Parquet files: auto mode, Spark's own plans with several settings, and other engines.

DuckDB and DataFusion run the same text. Polars' SQL lacks features that these queries use, and Acero has no SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, NamedTuple

from bench.engines.result_rows import ResultRows
from bench.engines.spark_session import spark_session, with_settings
from bench.engines.views import Views, named_in
from bench.harness import Bench, Contestant, measure, record, same, verify
from sparkext.wording import format_table

if TYPE_CHECKING:
    from bench.engines.competitors import Query

NOTES = """\
Measured: from listing the Parquet files and requesting the plan of a query until every row of its result, a few
thousand at most, is in Python. Cold: a pipeline reads and indexes all of its inputs again. Cached: indexes of files are
reused from the last run, but build sides that Spark computes are indexed again.
In addition to Spark's default plan there are plans by settings: broadcast joins for sides of up to half a gibibyte, or
shuffled hash joins. Of these two, the one that is fastest in the warm-up is timed. All contestants take turns, with the
same number of threads. Files are in the page cache.
Only queries for which auto mode plans a pipeline are timed. The other queries have the same plan as with the mode
off."""

COLD, CACHED, DEFAULT = "sparkext, cold", "sparkext, indexes cached", "Spark, default plan"

BROADCAST_UP_TO = "512m"
_SETTINGS = {
    "Spark, broadcast by setting": {"spark.sql.autoBroadcastJoinThreshold": BROADCAST_UP_TO},
    "Spark, shuffled hash by setting": {
        "spark.sql.join.preferSortMergeJoin": "false",
        "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "512m",
    },
}
_BY_SETTING = "Spark, by setting"


class Compared(NamedTuple):
    """One query: the joins of each of its pipelines, and all median seconds; empty if the plan is the same."""

    name: str
    joins: Sequence[int]
    seconds: Mapping[str, float]

    def ratio(self, ours: str) -> float:
        """Return the time relative to Spark's default plan."""
        return self.seconds[ours] / self.seconds[DEFAULT]


class SparkQueries(Views):
    """Runs queries of any number of rows in a session with the extension."""

    def contestants(self, text: str, settings: bool = True) -> list[Contestant]:
        """Return the contestants for one query: auto mode, the default plan, and plans by settings if `settings`."""
        return [
            same(COLD, partial(self.rows, text, cold=True), ours=True),
            same(CACHED, partial(self.rows, text), ours=True),
            same(DEFAULT, partial(self.rows, text, mode="off")),
            *(
                same(name, partial(self.rows, text, mode="off", settings=each), group=_BY_SETTING)
                for name, each in (_SETTINGS.items() if settings else ())
            ),
        ]

    def planned_joins(self, text: str) -> list[int]:
        """Return the number of joins in each pipeline that auto mode plans."""
        from sparkext.spark.extension import find_planned_runs

        with with_settings(self.spark, {"spark.sparkext.mode": "auto"}):
            return [len(joins) for joins, *_ in find_planned_runs(self.frame(text))]

    def rows(
        self, text: str, cold: bool = False, mode: str = "auto", settings: Mapping[str, str] | None = None
    ) -> ResultRows:
        """Run a query in a mode and with additional settings; `cold` as in `frame`."""
        with with_settings(self.spark, {"spark.sparkext.mode": mode, **(settings or {})}):
            return ResultRows(self.frame(text, cold).collect())


def compare(bench: Bench, tables: Mapping[str, Path], texts: Mapping[str, str]) -> None:
    """Check, time and report queries by name. On tiny data, queries with Spark's own plan run, too."""
    from bench.engines.competitors import datafusion_queries, duckdb_queries
    from sparkext import configure

    others = {"DuckDB": duckdb_queries(bench.threads), "DataFusion": datafusion_queries(bench.threads)}
    queries = []
    with spark_session(bench.threads, configure) as spark:
        asked = SparkQueries.of_files(spark, tables)
        for name, text in texts.items():
            joins = asked.planned_joins(text)
            seconds = {}
            if joins or bench.tiny:
                files = named_in(text, tables)
                engines = [same(engine, partial(_rows, query, text, files)) for engine, query in others.items()]
                seconds = timed(bench, name, [*asked.contestants(text), *engines])
            queries.append(Compared(name, joins, seconds))
    print_comparison(queries)


def _rows(query: Query, text: str, files: Mapping[str, Path]) -> ResultRows:
    return ResultRows(query(text, files))


def timed(bench: Bench, name: str, contestants: Sequence[Contestant], **values: str) -> dict[str, float]:
    """Check and time one query; return median seconds by name of the group, or of the contestant without one."""
    verify(contestants)
    timings = measure(bench, contestants)
    record(bench, timings, 0, part=name, **values)
    return {timing.contestant.group or timing.contestant.name: timing.median for timing in timings}


def print_comparison(queries: Sequence[Compared]) -> None:
    """Print the seconds of all queries, and the mean ratios of the queries with pipelines to Spark's default plan."""
    names = list(next((query.seconds for query in queries if query.seconds), {}))
    table = [
        [query.name, "+".join(map(str, query.joins)) or "none", *(f"{query.seconds[name]:.2f}" for name in names)]
        if query.seconds
        else [query.name, "none", "same plan", *[""] * (len(names) - 1)]
        for query in queries
    ]
    print(format_table(["query", "pipelines", *(names or ["seconds"])], table))
    another = [query for query in queries if query.seconds and query.joins]
    for ours in (COLD, CACHED) if another else ():
        mean = geometric_mean([query.ratio(ours) for query in another])
        print(f"{ours}, over {DEFAULT}: {mean:.2f}, the geometric mean of the {len(another)} that have another plan")
