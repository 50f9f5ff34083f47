"""The figures of joins and groups of tables: kernels, other engines, Spark, whole queries, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median

from bench.cases.memory.follow import SETTLING_SECONDS
from bench.report.result_files import Key
from docs.tools.figures import forms
from docs.tools.figures.archive import Archive
from docs.tools.figures.grid import Block, Grid, table_of
from sparkext.wording import format_markdown_table

_ENGINES = {"sparkext": "sparkext", "DuckDB": "DuckDB.*", "Polars": "Polars.*", "DataFusion": "DataFusion.*"}
_INDEXES = {"cached": "sparkext, index(?:es)? cached", "cold": "sparkext, cold"}
_OURS = {"sparkext, cached": _INDEXES["cached"], "sparkext, cold": _INDEXES["cold"]}
_BEST = r"Spark, (?:default plan|(\w+) hints)"
_SCANS = {
    "sparkext, indexes cached": "sparkext, indexes cached",
    "sparkext, cold": "sparkext, cold",
    "Spark, broadcast hints on all build sides": "Spark, broadcast hints",
    "Spark, default plan": "Spark, default plan",
    "workers read the probe side and emit as many of its columns, no join": r"\(floor: workers.*",
}
_PLANS = {
    "sparkext, all tables by `scan_parquet`, indexes rebuilt": "sparkext, scan_parquet",
    "Spark, broadcast hints on all build sides": "Spark, broadcast hints",
    "an empty `mapInArrow` over the probe side, no join": r"\(floor: mapInArrow.*",
    "sparkext, rows from Spark": "sparkext, rows from Spark",
    "Spark, default plan": "Spark, default plan",
}
_BY_QUERY = {
    "cold": "sparkext, cold",
    "cached": "sparkext, indexes cached",
    "Spark, default": "Spark, default plan",
    "Spark, by setting": r"Spark, (?:shuffled )?(\w+) by setting",
    "DuckDB": "DuckDB",
    "DataFusion": "DataFusion",
}
COMET = "Comet 0.12 in Spark 3.5"
_HINTED = {
    **_OURS,
    COMET: r"Comet, (default|broadcast|hash)(?: plan| hints| for sort-merge joins)",
    "Spark 4.3, best plan": _BEST,
    "Spark 3.5, default": "Spark 3.5, default plan",
}
_COMET_QUERIES = {
    **_OURS,
    COMET: r"Comet, (default|broadcast|hash)(?: plan| by setting| for sort-merge joins)",
    "Spark 4.3, default": "Spark, default plan",
    "Spark 3.5, default": "Spark 3.5, default plan",
}


def _one(case: str, scale_factor: float = 1.0, threads: int = 2, part: str = "") -> Key:
    return Key(case, part, scale_factor, threads)


def _kernels(archive: Archive) -> str:
    def line(kind: str) -> list[str]:
        tables = archive.tables("kernels.orders")
        timed = {part: next(each for each in table if each.contestant == kind) for part, table in tables.items()}
        [size] = (each for each in archive.lines("kernels.orders") if each["contestant"] == kind)
        rates = [f"{forms.million_rows(timed[f'probe, {order}'])} Mrow/s" for order in ("clustered", "shuffled")]
        return [kind, *rates, forms.median_seconds(timed["build"]), f"{size['bytes_per_row']:.0f}"]

    header = ["index", "clustered probes", "shuffled probes", "build", "bytes per build row"]
    return table_of(header, [partial(line, kind) for kind in ("dense", "hash", "ordered")])


GROUPS = Grid(
    {
        label: _one(f"groups.{name}", threads=1)
        for name, label in {
            "few": "1,000 groups, int64, dense",
            "few-sparse": "1,000 groups, int64, spread over 64 bits",
            "many": "1 M groups, int64, dense",
            "many-sparse": "1 M groups, int64, spread over 64 bits",
            "sorted-sparse": "1 M groups, int64, row after row of a group",
            "pair": "1,000 groups, two int64, spread over 64 bits",
            "pair-many": "1 M groups, two int64, spread over 64 bits",
            "flags": "6 groups, two texts of one byte",
            "int-text": "10,000 groups, int32 and a text of up to ten bytes",
            "text": "1,000 groups, text of twelve digits",
            "text-many": "1 M groups, text of twelve digits",
        }.items()
    },
    _ENGINES,
    form=forms.million_rows,
    first="keys",
)
ENGINES = Grid(
    {
        label: _one(f"engines.{name}")
        for name, label in {
            "clustered": "as TPC-H makes them (dense indexes)",
            "shuffled": "the same, lineitem in random order",
            "sparse": "spread over 64 bits (hash indexes)",
            "sparse-shuffled": "spread over 64 bits, lineitem in random order",
            "strings": "text of twelve digits",
            "composite": "two int64 columns, orders only",
            "many-to-many": "10 matches for each of 2 M rows",
            "files": "from Parquet files, keys as TPC-H makes them",
        }.items()
    },
    {**_ENGINES, "Acero": "Acero"},
    first="keys",
)
END_TO_END = Grid(
    {
        "to a noop sink, 14 columns": _one("end_to_end.three-joins"),
        "orders alone, to a noop sink": _one("end_to_end.one-join"),
        "a count and four sums": _one("end_to_end.aggregate"),
    },
    _PLANS,
    first="plan",
    transposed=True,
)
SCAN = Grid(
    {
        "to a noop sink, 14 columns": _one("scan.three-joins", 3.0),
        "a count and four sums": _one("scan.aggregate", 3.0),
        "orders alone, to a noop sink": _one("scan.one-join", 3.0),
        "written to Parquet": _one("scan.parquet", 3.0),
    },
    _SCANS,
    first="plan",
    transposed=True,
)
SCAN_OTHERS = Grid(
    {
        "scale factor 10, to a noop sink": _one("scan.three-joins", 10.0),
        "scale factor 1, written to Parquet": _one("scan.parquet"),
    },
    _SCANS,
    first="plan",
    transposed=True,
)


def _first_query(archive: Archive) -> str:
    def line(factor: float, contestant: str) -> list[str]:
        [found] = (one for one in archive.lines("scan.first-query", factor) if one["contestant"] == contestant)
        return [contestant, f"{factor:g}", *(forms.bounds(found[name]) for name in ("first", "warm"))]

    lines = [partial(line, factor, name) for factor in (1.0, 3.0) for name in ("sparkext", "Spark, broadcast hints")]
    return table_of(["plan", "scale factor", "first query", "fastest of five that follow"], lines)


TPCH = Grid(
    {
        f"q{number:02}": _one("tpch.queries", 3.0, part=f"q{number:02}")
        for number in range(1, 23)
        if number not in (11, 16, 19)
    },
    _BY_QUERY,
    first="query",
    over="Spark, default",
)
TPCDS = Grid(
    {f"q{number}": _one("tpcds.queries", part=f"q{number}") for number in (16, 24, 25, 72, 93, 95)},
    _BY_QUERY,
    first="query",
    over="Spark, default",
)
ORDERED = Grid(
    {
        "1 M points in 20 K intervals": _one("ordered.points"),
        "20 M points in 1 M intervals": _one("ordered.many-points"),
        "2 M intervals and 2 M, 99 M overlaps": _one("ordered.overlap"),
        "5 M intervals and 5 M, fan-out 10": _one("ordered.many-overlaps"),
        "200 K points near 20 K lines, a formula": _one("ordered.theta"),
        "2 M rows as of 1 M, 1,000 groups": _one("ordered.asof"),
        "10 M rows as of 5 M, 1,000 groups": _one("ordered.many-asof"),
    },
    {
        **_OURS,
        "sparkext, `mapInArrow`": "sparkext, mapInArrow",
        "DuckDB": "DuckDB",
        "Polars": "Polars",
        "Spark": r"Spark(?:, (bins and explode|sort-merge as-of))?",
    },
    first="case",
)
HARD = Grid(
    {
        "paths of two edges in a power-law graph, 2 M edges": _one("hard.graph"),
        "keys by Zipf's law over 64 bits, 6 M rows": _one("hard.skew"),
        "keys that are text, 4 M rows": _one("hard.strings"),
    },
    {
        **_OURS,
        "Spark, best plan": _BEST,
        "Spark, default": "Spark, default plan",
        **{name: name for name in ("DuckDB", "Polars", "DataFusion", "Acero")},
    },
    first="case",
)
COMET_CASES = Grid(
    {
        "three TPC-H joins, a count and four sums": _one("comet.three-joins"),
        "paths of two edges in a power-law graph": _one("comet.graph"),
        "keys by Zipf's law over 64 bits": _one("comet.skew"),
        "keys that are text": _one("comet.strings"),
    },
    _HINTED,
    first="case, sizes as above",
)
COMET_TPCH = Grid(
    {
        f"q{number:02}": _one("comet.tpch", part=f"q{number:02}")
        for number in (1, 3, 4, 5, 7, 8, 9, 10, 12, 17, 18, 20, 21)
    },
    _COMET_QUERIES,
    first="query",
    over="Spark 4.3, default",
)


def _memory(archive: Archive) -> str:
    def copies(kind: str) -> list[str]:
        lines = [line for line in archive.lines("memory.one-copy") if line["file"] == kind]
        sums = [sum(line[name] for line in lines) for name in ("resident", "proportional")]
        return [f"{kind}, {len(lines)} workers", *(f"{size / 2**20:.1f} MiB" for size in sums)]

    def peak(fan_out: int) -> list[str]:
        [line] = (one for one in archive.lines("memory.fan-out") if one["fan_out"] == fan_out)
        return [f"{fan_out:,}", forms.mib(line["peak"]), forms.mib(line["baseline"])]

    def one_row(condition: str, run: str) -> list[str]:
        lines = archive.lines("memory.one-row")
        [line] = (one for one in lines if (one["condition"], one["run"]) == (condition, run))
        return [condition, run, forms.mib(line["peak"]), forms.mib(line["mapped_files"])]

    runs = [(condition, run) for condition in ("a comparison", "a formula") for run in ("first", "second")]
    return "\n\n".join(
        [
            table_of(
                ["mapped", "resident in total", "proportional"], [partial(copies, k) for k in ("build file", "index")]
            ),
            table_of(
                ["matches of a row", "peak of a worker", "without any match"],
                [partial(peak, fan_out) for fan_out in (1, 10, 1000, 100_000)],
            ),
            table_of(
                ["50 M matches of one row by", "run", "peak of a worker", "of it mapped files"],
                [partial(one_row, *run) for run in runs],
            ),
        ]
    )


WAYS = {
    "sparkext": "sparkext",
    "sparkext with fixed morsels of 200,000 rows": "sparkext, morsels of 200,000",
    "sparkext with whole results": "sparkext, materialize",
    "Spark, broadcast hints": "Spark, broadcast hints",
    "Spark, merge hints": "Spark, merge hints",
    "Spark, shuffle_hash hints": "Spark, shuffle_hash hints",
    "a hand-written `mapInArrow` around Polars": "mapInArrow, Polars",
    "the same around pyarrow": "mapInArrow, pyarrow",
    "the same around DuckDB, the whole result of a batch": "mapInArrow, DuckDB",
    "the same around DuckDB, its result read as a stream": "mapInArrow, DuckDB streamed",
}


def outcome(archive: Archive, case: str, contestant: str) -> tuple[str, str]:
    """Return the outcome of a job under a memory limit, and its peak memory if it finished."""
    line = next(one for one in archive.lines(case) if one["contestant"] == contestant)
    if line["ending"] == "finished":
        return f"finishes in {line['seconds']:.0f} s", forms.mib(line["peak"])
    return "out of memory" if line["ending"] == "OutOfMemoryError" else line["ending"], ""


def _survival(archive: Archive) -> str:
    def line(label: str, contestant: str) -> list[str]:
        sinks = [outcome(archive, f"survival.{sink}", contestant) for sink in ("noop", "parquet")]
        return [label, *(cell for sink in sinks for cell in sink)]

    header = ["way", "to a sink that drops every row", "peak", "to Parquet", "peak"]
    return table_of(header, [partial(line, *way) for way in WAYS.items()])


def _concurrent(archive: Archive) -> str:
    def line(label: str, case: str) -> list[str]:
        [found] = archive.lines(case)
        seconds = found["seconds"]
        all_of = "all finish" if found["ending"] == "finished" else found["ending"]
        ratio = f"{max(seconds) / min(seconds):.2f}"
        return [label, all_of, ", ".join(f"{one:.0f}" for one in seconds), ratio, forms.mib(found["peak"])]

    cases = {"8": "survival.concurrent", "2": "survival.concurrent-two-slots"}
    header = ["task slots", "outcome", "seconds of each", "slowest / fastest", "peak"]
    return table_of(header, [partial(line, *case) for case in cases.items()])


def _best_size(archive: Archive) -> str:
    header = ["rows of an output", "three TPC-H joins", "ten matches a row"]
    names = ["adaptive", "1,024 rows", "4,096 rows", "16,384 rows", "65,536 rows", "262,144 rows", "1,048,576 rows"]

    def line(name: str) -> list[str]:
        cells = []
        for case in ("clustered", "many-to-many"):
            table = {each.contestant: each for each in archive.table(_one(f"controller.best-size.{case}", threads=1))}
            cells.append(f"{median(table[name].seconds) / median(table['adaptive'].seconds):.2f}")
        return [name, *cells]

    return table_of(header, [partial(line, name) for name in names])


def _controller(archive: Archive) -> str:
    def line(label: str, name: str) -> list[str]:
        lines = archive.lines(f"controller.cost.{name}")
        shares = [one["controller_seconds"] / one["seconds"] for one in lines]
        calls = [1e6 * one["controller_seconds"] / one["calls"] for one in lines]
        return [label, f"{lines[0]['calls']}", f"{min(calls):.0f} to {max(calls):.0f} µs", _percents(shares)]

    cases = {"three joins": "clustered", "ten matches a row": "many-to-many", "three joins, from Parquet": "files"}
    return table_of(["case", "calls", "each", "share of the time"], [partial(line, *case) for case in cases.items()])


def _percents(shares: Sequence[float]) -> str:
    return f"{min(shares):.1%} to {max(shares):.1%}"


def _budgets(archive: Archive) -> str:
    titles = {"controller.follow.group": "control group", "controller.follow.address-space": "address space"}
    lines = []
    for case, title in titles.items():
        for phase in archive.lines(case)[-1]["phases"]:
            budgets = (f"{phase[name]:,.0f}" for name in ("lowest", "budget", "highest"))
            lines.append([title, phase["name"], f"{phase['headroom'] / 2**20:.0f} MiB", *budgets])
    table = format_markdown_table(["run", "phase", "free", "lowest", "median", "highest"], lines)
    return f"{table}\n\nBudgets of the payload in rows, from {SETTLING_SECONDS} s after a phase began."


BLOCKS: Mapping[str, Block] = {
    "kernels": _kernels,
    "groups": GROUPS.render,
    "engines": ENGINES.render,
    "end-to-end": END_TO_END.render,
    "scan": SCAN.render,
    "scan-others": SCAN_OTHERS.render,
    "first-query": _first_query,
    "tpch": TPCH.render,
    "tpcds": TPCDS.render,
    "ordered": ORDERED.render,
    "hard": HARD.render,
    "comet": COMET_CASES.render,
    "comet-tpch": COMET_TPCH.render,
    "memory": _memory,
    "survival": _survival,
    "concurrent": _concurrent,
    "best-size": _best_size,
    "controller": _controller,
    "budgets": _budgets,
}
