"""Range and as-of joins from Parquet files to an aggregate, compared with Spark's plans and other engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data.chains import duckdb
from bench.data.generated import SEED, Columns, written
from bench.engines.spark_session import spark_session
from bench.engines.views import Views
from bench.harness import Bench, Case, Contestant, Timing, measure, report, same, step, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES = """\
Measured: from listing the files and requesting the plan until the single result row, a count and sums over all joined
rows, is there. For sparkext this includes reading, publishing and indexing the build side (cold), or finding the index
of the last run (cached). DuckDB and Polars read the same files with the same number of threads. Files are in the page
cache. If Spark's own plan takes a minute or more, it runs only once, and the run that checks its answer is timed.
Left out: starting Spark and the workers, compilation, generating data. Processor time is not shown, because other
processes, the JVM and the workers, do the work."""


@dataclass(frozen=True)
class RangeCase:
    """Two tables, the query over both, and the other contestants.

    `spark` is the query for Spark: `query`, or another form of it if Spark's plan for `query` would take hours; None
    leaves Spark out. `slow_spark`: Spark runs only once. `matrix`: the query also runs as a join matrix.
    """

    tables: Callable[[Bench], Mapping[str, Columns]]
    query: str
    probe: str
    spark: str | None = None
    polars: Callable[[Mapping[str, Any]], Any] | None = None
    slow_spark: bool = False
    row_group: int = 1 << 20
    matrix: bool = False


def points_and_intervals(points: int, intervals: int) -> Mapping[str, Columns]:
    """Return random points, and adjacent intervals in random order: each point is in one interval."""
    generator = np.random.default_rng(SEED)
    span = 1000 * intervals
    starts = generator.permutation(np.arange(intervals, dtype=np.int64) * 1000)
    return {
        "points": {"x": generator.integers(0, span, points), "p": np.arange(points, dtype=np.int64)},
        "spans": {"start": starts, "stop": starts + 1000, "s": np.arange(intervals, dtype=np.int64)},
    }


def overlapping(rows: int, fan_out: int) -> Mapping[str, Columns]:
    """Return intervals of many lengths for both sides. Each overlaps `fan_out` of the other side on average."""
    generator = np.random.default_rng(SEED)
    tables = {}
    for name, (start, stop, number) in {"one": ("a", "b", "p"), "other": ("c", "d", "s")}.items():
        starts = generator.integers(0, 100 * rows, rows)
        # The mean lengths of both sides add up to fan_out × 100. One interval in a hundred is long.
        lengths = generator.exponential(fan_out * 25, rows) * np.where(generator.random(rows) < 0.01, 51, 1.5)
        tables[name] = {
            start: starts,
            stop: starts + lengths.astype(np.int64),
            number: np.arange(rows, dtype=np.int64),
        }
    return tables


def points_and_lines(points: int, lines: int) -> Mapping[str, Columns]:
    """Return points in the unit square, and lines through it."""
    generator = np.random.default_rng(SEED)
    angles = generator.random(lines) * np.pi
    slopes = {"u": np.cos(angles), "v": np.sin(angles)}
    through = generator.random((2, lines))
    return {
        "dots": {
            "x": generator.random(points),
            "y": generator.random(points),
            "p": np.arange(points, dtype=np.int64),
        },
        "lines": {
            **slopes,
            "c": through[0] * slopes["u"] + through[1] * slopes["v"],
            "s": np.arange(lines, dtype=np.int64),
        },
    }


def trades_and_quotes(trades: int, quotes: int, symbols: int) -> Mapping[str, Columns]:
    """Return unsorted rows of many symbols. No two quotes have the same time."""
    generator = np.random.default_rng(SEED)
    quoted = generator.permutation(np.arange(quotes, dtype=np.int64) * 20)
    return {
        "trades": {
            "traded": generator.integers(0, 20 * quotes, trades),
            "symbol": generator.integers(0, symbols, trades).astype(np.int32),
            "size": generator.integers(1, 100, trades).astype(np.int64),
        },
        "quotes": {
            "quoted": quoted,
            "name": generator.integers(0, symbols, quotes).astype(np.int32),
            "bid": generator.integers(1, 10_000, quotes).astype(np.int64),
        },
    }


_IN_SPAN = "SELECT count(*) AS n, sum(p % 1000) AS p, sum(s) AS s FROM points JOIN spans ON x >= start AND x < stop"
_OVERLAP = "SELECT count(*) AS n, sum(p % 1000) AS p, sum(s % 1000) AS s FROM one JOIN other ON a <= d AND b >= c"
_BIN = 20_000
_BINNED = f"""
SELECT count(*) AS n, sum(p % 1000) AS p, sum(s % 1000) AS s FROM
    (SELECT *, explode(sequence(a DIV {_BIN}, b DIV {_BIN})) AS bin FROM one) x
    JOIN (SELECT *, explode(sequence(c DIV {_BIN}, d DIV {_BIN})) AS bin FROM other) y
    ON x.bin = y.bin AND a <= d AND b >= c AND x.bin = greatest(a DIV {_BIN}, c DIV {_BIN})"""
_NEAR = "SELECT count(*) AS n, sum(p) AS p, sum(s) AS s FROM dots JOIN lines ON abs(x * u + y * v - c) < 0.0002"


def cases() -> list[Case]:
    """Return the cases: points in intervals, overlapping intervals, points near lines, and as-of joins."""
    small = RangeCase(
        lambda bench: points_and_intervals(bench.sized(1_000_000), bench.sized(20_000)),
        _IN_SPAN,
        "points",
        _IN_SPAN,
        _polars_points,
        slow_spark=True,
    )
    large = RangeCase(
        lambda bench: points_and_intervals(bench.sized(20_000_000), bench.sized(1_000_000)),
        _IN_SPAN,
        "points",
        polars=_polars_points,
    )
    overlap = RangeCase(lambda bench: overlapping(bench.sized(2_000_000), 50), _OVERLAP, "one", _BINNED)
    overlaps = RangeCase(
        lambda bench: overlapping(bench.sized(5_000_000), 10), _OVERLAP, "one", _BINNED, row_group=1 << 18, matrix=True
    )
    # Few rows have many pairs, and some engines process a row group in one thread: row groups are small.
    near = RangeCase(
        lambda bench: points_and_lines(bench.sized(200_000), bench.sized(20_000)),
        _NEAR,
        "dots",
        _NEAR,
        _polars_near,
        slow_spark=True,
        row_group=1 << 13,
    )
    return [
        Case("ordered.points", "1 M points in 20 K intervals", partial(_run_ranges, small), scaled=False),
        Case(
            "ordered.many-points", "20 M points in 1 M intervals", partial(_run_ranges, large), scaled=False, named=True
        ),
        Case("ordered.overlap", "2 M intervals and 2 M, fan-out 50", partial(_run_ranges, overlap), scaled=False),
        Case(
            "ordered.many-overlaps",
            "5 M intervals and 5 M, fan-out 10",
            partial(_run_ranges, overlaps),
            scaled=False,
            named=True,
        ),
        Case("ordered.theta", "200 K points near 20 K lines", partial(_run_ranges, near), scaled=False),
        Case(
            "ordered.asof",
            "2 M trades as of 1 M quotes, 1,000 symbols",
            partial(_run_asof, 2_000_000, 1_000_000, with_spark=True),
            scaled=False,
        ),
        # Spark's own plan takes eight minutes here, so it only runs in the smaller case.
        Case(
            "ordered.many-asof",
            "10 M trades as of 5 M quotes, 1,000 symbols",
            partial(_run_asof, 10_000_000, 5_000_000, with_spark=False),
            scaled=False,
        ),
    ]


def _run_ranges(case: RangeCase, bench: Bench) -> None:
    from sparkext import configure

    paths = written(bench, bench.case, lambda: case.tables(bench), case.row_group)
    query = case.query
    if bench.tiny:  # auto mode leaves joins of few rows to Spark
        [build] = paths.keys() - {case.probe}
        query = query.replace("SELECT", f"SELECT /*+ PIPELINED_JOIN({build}) */", 1)
    with spark_session(bench.threads, configure) as spark:
        views = Views.of_files(spark, paths)
        contestants = [
            *_cold_and_cached(views, query),
            same("DuckDB", duckdb(case.query, paths, bench.threads)),
        ]
        if case.matrix:
            divided = partial(views.row, query, mode="auto", partitioned="always")
            contestants.append(same("sparkext, a matrix", divided, ours=True))
        if case.polars is not None:
            contestants.append(same("Polars", lambda: _polars(case, paths)))
        slow = []
        if case.spark is not None:
            own = "Spark" if case.spark == case.query else "Spark, bins and explode"
            (slow if case.slow_spark else contestants).append(same(own, partial(views.row, case.spark, mode="off")))
        _compete(bench, spark, contestants, slow, spark.read.parquet(str(paths[case.probe])).count())


def _run_asof(trade_rows: int, quote_rows: int, bench: Bench, with_spark: bool) -> None:
    from sparkext import asof_join, configure

    name = f"{bench.case}-{trade_rows}"
    paths = written(bench, name, lambda: trades_and_quotes(bench.sized(trade_rows), bench.sized(quote_rows), 1000))
    query = (
        "SELECT count(bid) AS n, sum(size) AS size, sum(bid) AS bid FROM trades"
        " ASOF LEFT JOIN quotes ON symbol = name AND traded >= quoted"
    )
    with spark_session(bench.threads, configure) as spark:
        sparks = (
            "SELECT count(bid), sum(size), sum(bid) FROM trades"
            " LEFT ASOF JOIN quotes MATCH_CONDITION (traded >= quoted) ON symbol = name"
        )
        views = Views.of_files(spark, paths)

        def transformed() -> object:
            spark.conf.set("spark.sparkext.mode", "off")  # the transform runs as it does without the extension
            trades, quotes = (spark.read.parquet(str(paths[name])) for name in ("trades", "quotes"))
            out = trades.transform(asof_join(quotes, on=("traded", "quoted"), by=[("symbol", "name")]))
            return tuple(out.selectExpr("count(bid)", "sum(size)", "sum(bid)").collect()[0])

        contestants = [
            *_cold_and_cached(views, sparks),
            same("sparkext, mapInArrow", transformed, ours=True),
            same("DuckDB", duckdb(query, paths, bench.threads)),
            same("Polars", lambda: _polars_asof(paths)),
        ]
        slow = [same("Spark, sort-merge as-of", partial(views.row, sparks, mode="off"))] if with_spark else []
        _compete(bench, spark, contestants, slow, spark.read.parquet(str(paths["trades"])).count())


def _cold_and_cached(views: Views, query: str) -> list[Contestant]:
    """Return this package's plan of a query in auto mode, without and with the index of the last run."""
    views.assert_pipelined(query, mode="auto")
    return [
        same("sparkext, cold", partial(views.row, query, cold=True, mode="auto"), ours=True),
        same("sparkext, index cached", partial(views.row, query, mode="auto"), ours=True),
    ]


def _compete(
    bench: Bench, spark: SparkSession, contestants: list[Contestant], slow: list[Contestant], rows: int
) -> None:
    answer = verify(contestants)
    once = []
    for contestant in slow:
        with step(f"the only run of {contestant.name}"):
            started = time.perf_counter()
            if contestant.answer() != answer:
                raise AssertionError(f"{contestant.name} has another answer than {answer}")
            once.append(Timing(contestant, [time.perf_counter() - started], [0.0]))
    print(f"{rows:,} rows probe; all agree on {answer}")
    report(bench, [*measure(bench, contestants), *once], rows, cpu=False)


def _polars(case: RangeCase, paths: Mapping[str, Path]) -> object:
    import polars

    assert case.polars is not None
    scanned = {name: polars.scan_parquet(path) for name, path in paths.items()}
    [row] = case.polars(scanned).collect(engine="streaming").rows()
    return tuple(row)


def _polars_points(tables: Mapping[str, Any]) -> Any:
    from polars import col, len

    joined = tables["points"].join_where(tables["spans"], col("x") >= col("start"), col("x") < col("stop"))
    return joined.select(len().alias("n"), (col("p") % 1000).sum(), col("s").sum())


def _polars_near(tables: Mapping[str, Any]) -> Any:
    from polars import col, len

    distance = col("x") * col("u") + col("y") * col("v") - col("c")
    joined = tables["dots"].join_where(tables["lines"], distance.abs() < 0.0002)
    return joined.select(len().alias("n"), col("p").sum(), col("s").sum())


def _polars_asof(paths: Mapping[str, Path]) -> object:
    import polars
    from polars import col

    trades, quotes = (
        polars.scan_parquet(paths[name]).sort(by) for name, by in (("trades", "traded"), ("quotes", "quoted"))
    )
    joined = trades.join_asof(quotes, left_on="traded", right_on="quoted", by_left="symbol", by_right="name")
    [row] = joined.select(col("bid").count().alias("n"), col("size").sum(), col("bid").sum()).collect().rows()
    return tuple(row)
