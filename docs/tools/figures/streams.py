"""The figures of streams: joins, time order, continuous queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from bench.report.fit import power_law
from bench.report.result_files import Key, Timed
from docs.tools.figures import forms
from docs.tools.figures.archive import Archive, MissingResultError
from docs.tools.figures.grid import Block, Grid, table_of

Line = Mapping[str, Any]


def found_line(archive: Archive, case: str, **values: object) -> Line:
    """Return the last line of a case with these values."""
    lines = [line for line in archive.lines(case) if all(line.get(name) == value for name, value in values.items())]
    if not lines:
        raise MissingResultError(case)
    return lines[-1]


def _rate(line: Line) -> str:
    return forms.rows_per_second(line["rows_per_second"])


def _joins(archive: Archive) -> str:
    def line(label: str, case: str, contestant: str, state: int) -> list[str]:
        found = found_line(archive, case, contestant=contestant, state=state)
        return [label, f"{state // 10**6} M", f"{found['rows']:,}", _rate(found), f"{found['median_ms'] / 1000:.2f} s"]

    few, many = 1_000_000, 10_000_000
    rows = [
        ("points in intervals: sparkext", "streams.ranges", "sparkext", few),
        ("Spark, buckets", "streams.ranges", "spark", few),
        ("sparkext", "streams.ranges", "sparkext", many),
        ("equal keys: sparkext", "streams.keys", "sparkext", few),
        ("Spark's own join", "streams.keys", "spark", few),
        ("sparkext", "streams.keys", "sparkext", many),
    ]
    header = ["", "rows of state", "rows a batch", "rows a second", "batch"]
    return table_of(header, [partial(line, *row) for row in rows])


def _latency(archive: Archive) -> str:
    def line(label: str, contestant: str) -> list[str]:
        taken = sorted(found_line(archive, "streams.latency", contestant=contestant)["batch_ms"])
        percentiles = (taken[min(len(taken) - 1, int(share * len(taken)))] for share in (0.5, 0.9, 0.99))
        return [label, *(forms.seconds(one / 1000) for one in percentiles)]

    rows = {
        "10,000 rows over 1 M of state: sparkext": "sparkext",
        "two rows over almost none: Spark's own join": "spark, keys, empty batches",
    }
    return table_of(["a batch of", "median", "90 %", "99 %"], [partial(line, *row) for row in rows.items()])


def _growth(archive: Archive) -> str:
    def line(state: int) -> list[str]:
        found = found_line(archive, "streams.growth", contestant="sparkext", state=state)
        return [f"{state / 1e6:g} M", forms.seconds(found["median_ms"] / 1000)]

    lines = [partial(line, 1_250_000 * times) for times in (1, 2, 4, 8)]
    return table_of(["rows of state", "a batch of 10,000 rows"], lines)


def _skew(archive: Archive) -> str:
    def line(zipf: float) -> list[str]:
        found = found_line(archive, "streams.skew", zipf=zipf)
        return [f"{zipf:g}", forms.seconds(found["median_ms"] / 1000)]

    lines = [partial(line, zipf) for zipf in (0.0, 0.5, 1.0, 1.5, 2.0)]
    return table_of(["z of the points", "a batch of 200,000 rows"], lines)


def _flink_joins(archive: Archive) -> str:
    def line(contestant: str, state: int) -> list[str]:
        found = found_line(archive, "flink.ranges", contestant=contestant, state=state)
        return [contestant, f"{state // 10**6} M", _rate(found)]

    rows = [(name, state) for state in (1_000_000, 10_000_000) for name in ("sparkext", "Flink")]
    return table_of(["", "rows of state", "rows a second"], [partial(line, *row) for row in rows])


def _nexmark(archive: Archive) -> str:
    def line(label: str, query: str) -> list[str]:
        lines = (found_line(archive, f"nexmark.{query}", contestant=name) for name in ("sparkext", "spark"))
        return [label, *(forms.seconds(sum(found["batch_seconds"])) for found in lines)]

    queries = {
        "q3: who sells in three states": "q3",
        "q8: who opens an auction when new": "q8",
        "q9: bids while an auction is open": "q9",
    }
    return table_of(["", "sparkext", "Spark's own join"], [partial(line, *query) for query in queries.items()])


def _planners(archive: Archive) -> str:
    shown = (2_000_000, 4_000_000, 5_000_000, 6_000_000)

    def bound() -> list[str]:
        archive.lines("matrix.planners")
        return ["the bound 4·R·S/V²", *(f"{(total / 800_000) ** 2:.1f}" for total in shown), ""]

    def line(label: str, planner: str) -> list[str]:
        found = found_line(archive, "matrix.planners", planner=planner, ratio=1)
        moved = f"{found['moved'] / 1e6:.1f} M"
        return [label, *(str(found["units"][str(total)]) for total in shown), moved]

    planners = {
        "MFM, all γ, whenever a unit is full": "MFM",
        "fragments of half a unit, never cut again": "fragments",
        "Dynamic": "Dynamic",
        "Readj, Zipf z = 1, hottest bucket left as it is": "Readj, z = 1",
    }
    header = ["", *(f"{total // 10**6} M rows" for total in shown), "rows moved"]
    return table_of(header, [bound, *(partial(line, *planner) for planner in planners.items())])


def _units(archive: Archive) -> str:
    def line(rows: int) -> list[str]:
        found = found_line(archive, "matrix.streams", planner="run", rows=rows)
        return [f"{rows // 10**6} M", str(found["units"]), str(found["least"])]

    lines = [partial(line, rows) for rows in (2_000_000, 4_000_000, 5_000_000)]
    return table_of(["rows of state", "units of `stream_join`", "least units by MFM"], lines)


MERGE = Grid(
    {f"{runs}": Key("ordered_streams.merge", f"{runs} runs", 1.0, 1) for runs in (2, 8, 64)},
    {
        "sparkext": "sparkext",
        "numpy, a stable sort": "numpy",
        "Polars, merge_sorted": "Polars",
        "DuckDB, ORDER BY": "DuckDB",
    },
    form=forms.million_rows,
    first="runs",
)


def _simulated_order(archive: Archive) -> str:
    def line(work: str, partitions: int) -> list[str]:
        found = found_line(archive, "ordered_streams.slots", part=f"{work}, {partitions} slots")
        ratios = (f"{found[name]:.1f}" for name in ("total", "basic", "optimised", "none"))
        return [work, str(partitions), *ratios, f"{found['merged']:.0%}"]

    works = ("order alone", "a function of each sensor")
    header = ["", "partitions", "total order", "basic", "optimised", "no order", "merged"]
    return table_of(header, [partial(line, work, partitions) for work in works for partitions in (4, 8, 16, 64)])


def _order_latency(archive: Archive) -> str:
    def line(label: str, since: str) -> list[str]:
        [found] = archive.lines("ordered_streams.latency")[-1:]
        return [label, *(str(found[f"{since}_{percent}"]) for percent in (50, 99, 100))]

    rows = {"the batch that brought the row": "arrival", "the batch at whose end it was due": "watermark"}
    return table_of(["batches after", "median", "99 %", "most"], [partial(line, *row) for row in rows.items()])


def _order_alone(archive: Archive) -> str:
    def line(contestant: str) -> list[str]:
        found = found_line(archive, "ordered_streams.alone", contestant=contestant)
        return [contestant, _rate(found)]

    names = ("sparkext", "Spark, a sort per batch", "transformWithState")
    return table_of(["", "rows a second"], [partial(line, name) for name in names])


def _order_skew(archive: Archive) -> str:
    def line(share: str, label: str, contestant: str) -> list[str]:
        found = found_line(archive, "ordered_streams.skew", part=share, contestant=contestant)
        return [share, label, _rate(found)]

    ways = {"split": "optimised", "`split=False`": "whole"}
    lines = [partial(line, share, *way) for share in ("0%", "50%") for way in ways.items()]
    return table_of(["of one device", "", "rows a second"], lines)


def _flink_order(archive: Archive) -> str:
    def line(contestant: str, size: int) -> list[str]:
        found = found_line(archive, "flink.ordered", contestant=contestant, rows_of_batch=size)
        return [contestant, f"{size:,}", _rate(found)]

    names = ("sparkext", "Flink, a keyed process function in Java")
    lines = [partial(line, name, size) for size in (200_000, 1_000_000) for name in names]
    return table_of(["", "rows a batch", "rows a second"], lines)


def _rates(label: str, timed: Timed, start: Sequence[float]) -> list[str]:
    """Return the label, the number of rows, and rows per second with and without the start of the job."""
    whole = median(timed.seconds)
    alone = forms.rows_per_second(timed.rows / (whole - median(start))) if start else ""
    return [label, f"{timed.rows:,}", forms.rows_per_second(timed.rows / whole), alone]


_RATES = ["", "rows", "rows a second", "without the start"]


def _trading(archive: Archive) -> str:
    def line(label: str, contestant: str, part: str = "") -> list[str]:
        table = {timed.contestant: timed for timed in archive.table(Key("cql.trading", part, 1.0, 1))}
        start = table.get(f"{contestant}, start")
        return _rates(label, table[contestant], start.seconds if start else ())

    rows = [
        ("the engine alone, from Arrow columns", "sparkext, engine"),
        ("a loop by hand, in Python over lists", "a loop in Python"),
        ("`cql` in Spark, from files to orders", "sparkext in Spark"),
        ("the loop by hand in `applyInPandas`, from files to orders", "applyInPandas"),
        ("the loop in `transformWithState`, from files to orders", "transformWithState", "transformWithState"),
    ]
    return _with_share(archive, "cql.trading", table_of(_RATES, [partial(line, *row) for row in rows]))


def _flink_trading(archive: Archive) -> str:
    def line(label: str, contestant: str) -> list[str]:
        table = {timed.contestant: timed for timed in archive.table(Key("flink.trading", "", 1.0, 1))}
        return _rates(label, table[contestant], table[contestant].values["start_seconds"])

    rows = {
        "`cql` in Spark": "sparkext in Spark",
        "the loop by hand, in Python over lines": "a loop in Python",
        "Flink": "Flink, a process function in Java",
    }
    return _with_share(archive, "flink.trading", table_of(_RATES, [partial(line, *row) for row in rows.items()]))


def _with_share(archive: Archive, case: str, table: str) -> str:
    """Add the share of bought offers to a table, if it has results."""
    if case not in archive.cases:
        return table
    shares = next(timed.values["bought"] for timed in archive.tables(case)[""])
    return f"{table}\n\nIn each tenth of the input, at least {min(shares):.0%} of the offers are bought."


def _turns(archive: Archive) -> str:
    ways = ("together", *(f"{batch:,} in turn" for batch in (1, 10, 100, 1000, 10_000)))

    def line(queries: int, alike: int) -> list[str]:
        key = Key("cql.turns", f"{queries} queries, {alike} rows of a time", 1.0, 1)
        table = {timed.contestant: timed for timed in archive.table(key)}
        return [str(queries), str(alike), *(forms.thousand_rows(table[way]) for way in ways)]

    lines = [partial(line, queries, alike) for alike in (1, 4) for queries in (1, 2, 4)]
    return table_of(["queries", "rows of a time", *ways], lines)


RECURSION = Grid(
    {"recursive, or with the orders as a stream": Key("cql.recursive", "", 1.0, 1)},
    {"recursive": "recursive", "without a cycle": "what was bought as a stream"},
)
DELAYS = Grid(
    {"the trading query": Key("cql.delays", "", 1.0, 1)},
    {name: name for name in ("before cash and before stock", "and behind orders", "inserted")},
)


def _exponents(archive: Archive) -> str:
    def line(part: str) -> list[str]:
        tables = archive.tables("cql.growth").values()
        points = sorted((one.values["size"], min(one.seconds)) for [one] in tables if one.values["of"] == part)
        sizes, seconds = zip(*points, strict=True)
        return [part, f"{sizes[0]:,} to {sizes[-1]:,}", str(power_law(sizes, seconds))]

    return table_of(
        ["", "sizes", "exponent"], [partial(line, part) for part in ("rows", "queries", "rows in a window")]
    )


def _keys(archive: Archive) -> str:
    def line(threads: int) -> list[str]:
        [timed] = archive.table(Key("cql.keys", "", 1.0, threads))
        return _rates(str(threads), timed, timed.values["start_seconds"])

    return table_of(["cores", *_RATES[1:]], [partial(line, threads) for threads in (1, 2)])


BLOCKS: Mapping[str, Block] = {
    "stream-joins": _joins,
    "stream-latency": _latency,
    "stream-growth": _growth,
    "stream-skew": _skew,
    "flink-joins": _flink_joins,
    "nexmark": _nexmark,
    "planners": _planners,
    "units": _units,
    "merge": MERGE.render,
    "simulated-order": _simulated_order,
    "order-latency": _order_latency,
    "order-alone": _order_alone,
    "order-skew": _order_skew,
    "flink-order": _flink_order,
    "trading": _trading,
    "flink-trading": _flink_trading,
    "turns": _turns,
    "recursion": RECURSION.render,
    "delays": DELAYS.render,
    "cql-growth": _exponents,
    "cql-keys": _keys,
}
