"""The table of the front page: a selection from the other tables, including losses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from docs.tools.figures import batch, forms, partitioned
from docs.tools.figures.archive import Archive, MissingResultError
from docs.tools.figures.grid import Block, Grid
from docs.tools.figures.streams import found_line
from sparkext.wording import format_markdown_table

_CACHED = "with cached indexes"
_BROADCAST = "Spark, broadcast hints on all build sides"


def seconds_in(archive: Archive, grid: Grid, row: str) -> dict[str, str]:
    """Return the median seconds of each column of a row."""
    return {name: forms.median_seconds(timed) for name, timed in grid.picked(archive, row).items()}


def _factors(grid: Grid, label: str, others: Mapping[str, str], archive: Archive) -> list[str]:
    factors = {name: forms.factor(value) for name, value in grid.factors(archive).items()}
    cold, cached = (next(name for name in factors if word in name) for word in ("cold", "cached"))
    setting = factors.get("Spark, by setting")
    return [
        label,
        f"{factors[cold]} faster, {factors[cached]} {_CACHED}",
        f"1; with settings for larger broadcasts or hash joins {setting}" if setting else "1",
        ", ".join(f"{shown} {factors[name]}" for name, shown in others.items()),
    ]


def _scan(archive: Archive) -> list[str]:
    plans = seconds_in(archive, batch.SCAN, "a count and four sums")
    ours = f"{plans['sparkext, cold']}, {plans['sparkext, indexes cached']} {_CACHED}"
    sparks = f"{plans[_BROADCAST]} broadcast, {plans['Spark, default plan']} by default"
    return ["three joins of 18 M rows from Parquet, a count and four sums", ours, sparks, ""]


def _comet(archive: Archive) -> list[str]:
    [row] = (row for row in batch.COMET_CASES.rows if row.startswith("three"))
    plans = seconds_in(archive, batch.COMET_CASES, row)
    ours = f"{plans['sparkext, cold']}, {plans['sparkext, cached']} {_CACHED}"
    return [
        "the same of 6 M rows",
        ours,
        f"{plans['Spark 4.3, best plan']} broadcast",
        f"{batch.COMET}: {plans[batch.COMET]}",
    ]


def _rows_from_spark(archive: Archive) -> list[str]:
    plans = seconds_in(archive, batch.END_TO_END, "to a noop sink, 14 columns")
    sparks = f"{plans[_BROADCAST]} broadcast, {plans['Spark, default plan']} by default"
    label = "three joins of 6 M rows, rows from Spark through `mapInArrow`"
    return [label, plans["sparkext, rows from Spark"], sparks, ""]


def _ordered(row: str, archive: Archive) -> list[str]:
    plans = seconds_in(archive, batch.ORDERED, row)
    ours = f"{plans['sparkext, cold']}, {plans['sparkext, cached']} {_CACHED}"
    spark = f"{plans['Spark']}, one run" if "Spark" in plans else "not timed"
    return [row, ours, spark, ", ".join(f"{name} {plans[name]}" for name in ("DuckDB", "Polars"))]


def _partitioned(archive: Archive) -> list[str]:
    plans = seconds_in(archive, partitioned.JOINS, "the same, scale factor 3")
    label = "lineitem ⋈ orders, scale factor 3, both sides partitioned, a count and sums"
    return [label, plans["sparkext"], f"{plans['Spark, hinted']} with hints, {plans['Spark, default']} by default", ""]


def _hot(archive: Archive) -> list[str]:
    plans = seconds_in(archive, partitioned.HOT, "Zipf keys on both sides, one of which has half of all pairs")
    label = "800,000 rows with 80,000, Zipf keys, the hottest has half of all pairs: both sides partitioned"
    split = f"{plans['Spark, skew join set to split']} if its skew join is set to split"
    return [label, plans["sparkext"], f"{split}, {plans['Spark, default']} by default", ""]


def _streams(archive: Archive) -> list[str]:
    few, many, sparks = (
        forms.rows_per_second(found_line(archive, "streams.ranges", contestant=name, state=state)["rows_per_second"])
        for name, state in (("sparkext", 1_000_000), ("sparkext", 10_000_000), ("spark", 1_000_000))
    )
    label = "two streams, points in intervals, batches of 100,000 rows over 1 M rows of state"
    return [label, f"{few} rows a second ({many} over 10 M)", f"refused; {sparks} with buckets of equal width", ""]


def _survival(archive: Archive) -> list[str]:
    ways = {name: batch.outcome(archive, "survival.noop", way)[0] for name, way in batch.WAYS.items()}
    streamed = ways["the same around DuckDB, its result read as a stream"]
    sparks = ", ".join(
        f"{name}: {ways[f'Spark, {hint} hints']}"
        for name, hint in (("broadcast", "broadcast"), ("sort-merge", "merge"), ("shuffled hash", "shuffle_hash"))
    )
    killed = {ways["a hand-written `mapInArrow` around Polars"], ways["the same around pyarrow"]}
    return [
        "100,000 matches for each of a few rows, within 1.5 GiB, one run",
        ways["sparkext"],
        sparks,
        f"in `mapInArrow` Polars and pyarrow: {', '.join(killed)}; DuckDB, if read as a stream, {streamed}",
    ]


def _headlines(archive: Archive) -> str:
    lines = [
        partial(
            _factors,
            batch.TPCH,
            "TPC-H, scale factor 3: the 19 of 22 queries whose plan auto mode changes, against Spark's default plans",
            {name: name for name in ("DuckDB", "DataFusion")},
        ),
        partial(_factors, batch.COMET_TPCH, "the same, scale factor 1: 13 queries", {batch.COMET: f"{batch.COMET}:"}),
        partial(
            _factors,
            batch.TPCDS,
            "TPC-DS, scale factor 1: the 6 of 16; q24 loses",
            {name: name for name in ("DuckDB", "DataFusion")},
        ),
        _scan,
        _comet,
        _rows_from_spark,
        *(partial(_ordered, row) for row in batch.ORDERED.rows if row.startswith(("1 M points", "2 M rows", "10 M"))),
        _partitioned,
        _hot,
        _streams,
        _survival,
    ]
    found = []
    for line in lines:
        try:
            found.append(line(archive))
        except MissingResultError:  # the benchmarks page has the command
            continue
    return format_markdown_table(["case", "sparkext", "Spark", "others"], found)


BLOCKS: Mapping[str, Block] = {"headlines": _headlines}
