"""Figures within sentences: each page has to contain words that are derived from the archived results.

Sentences are not generated as tables are. Instead, a claim is a function that returns the words around a figure. A test
checks that the page contains these words, and that every time, rate, factor and percentage of the page is part of a
claim, of a generated table, or of `NOT_MEASURED`, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from docs.tools.figures import batch, forms
from docs.tools.figures.archive import Archive
from docs.tools.figures.grid import Grid
from docs.tools.figures.study import deliveries, rates, thread_medians

Claim = Callable[[Archive], str]

FIGURE = re.compile(
    r"\d[\d,.]*(?: to \d[\d,.]*)?(?:×|[ ]?(?:µs|ms|s|seconds|minutes|Mrow/s|%)|[ ](?:times|rows a second))(?![\w/])"
)
"""A time, a rate, a factor or a percentage."""

NOT_MEASURED: Mapping[str, Mapping[str, str]] = {
    "benchmarks.md": {
        "all cases that the other files lack, in 42 minutes": "how long all cases took",
        "the largest device has 17 % of all rows": "the paper",
        "which answers 30 ms after a request": "a setting of the benchmark",
    },
    "budgets.md": {"The limit is read every 5 to 50 ms": "constants of `plans/adaptive/output_size.py`"},
    "cql.md": {"`ISTREAM(…)<5 seconds>`": "an example of the language"},
    "transforms.md": {'such as `"10 minutes"` or `"interval 1 hour 30 minutes"`': "examples of durations"},
    "how-it-works.md": {"for ranges that are 32 times as wide": "bits of a word"},
}
"""Figures that are not measurements, by page: the words around them, and their origin."""


def _factor(grid: Grid, column: str, archive: Archive) -> str:
    return forms.factor(grid.factors(archive)[column])


def _seconds(grid: Grid, row: str, column: str, archive: Archive) -> str:
    return forms.median_seconds(grid.picked(archive, row)[column])


def _tpch(archive: Archive) -> str:
    cold, cached = (_factor(batch.TPCH, name, archive) for name in ("cold", "cached"))
    return f"these are {cold} faster (geometric mean; {cached} with cached indexes)"


def _by_setting(archive: Archive) -> str:
    return f"makes Spark {_factor(batch.TPCH, 'Spark, by setting', archive)} faster"


def _points(archive: Archive) -> str:
    cold, spark = (
        _seconds(batch.ORDERED, "1 M points in 20 K intervals", name, archive) for name in ("sparkext, cold", "Spark")
    )
    return f"[{cold} instead of {spark}]"


def _crossing(archive: Archive) -> str:
    row, column = "to a noop sink, 14 columns", "an empty `mapInArrow` over the probe side, no join"
    return f"million rows cost [{_seconds(batch.END_TO_END, row, column, archive)}]"


def _duckdb(archive: Archive) -> str:
    factors = batch.TPCH.factors(archive)
    return f"[{forms.factor(factors['DuckDB'] / factors['cold'])} faster](benchmarks.md#tpc-h-and-tpc-ds)"


def _q06(archive: Archive) -> str:
    picked = batch.TPCH.picked(archive, "q06")
    ratio = median(picked["Spark, default"].seconds) / median(picked["cold"].seconds)
    return f"TPC-H's q06, which only filters and sums, is {forms.factor(ratio)} faster than in Spark"


def _q20(archive: Archive) -> str:
    comet, cold, cached = (
        _seconds(batch.COMET_TPCH, "q20", name, archive) for name in (batch.COMET, "sparkext, cold", "sparkext, cached")
    )
    query = f"needs {comet} for TPC-H's q20 at scale factor 1"
    return f"{query}; this package needs {cold} with cold indexes, and {cached} with cached indexes"


def _few_intervals(archive: Archive) -> str:
    row = "1 M points in 20 K intervals"
    polars, duckdb, cold, cached = (
        _seconds(batch.ORDERED, row, name, archive)
        for name in ("Polars", "DuckDB", "sparkext, cold", "sparkext, cached")
    )
    return (
        f"Polars needs {polars} and DuckDB {duckdb} for the points above; sparkext needs {cold}, with a cached index"
        f" {cached}"
    )


def _comet_counts(archive: Archive) -> str:
    ahead, level, slower = batch.COMET_TPCH.counts(archive, "sparkext, cold", batch.COMET)
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    return (
        f"on {words[ahead]} queries of {ahead + level + slower}, level on {words[level]}, and slower on {words[slower]}"
    )


def _threads(archive: Archive) -> str:
    together, alone = [], []
    for build_rows in (100_000, 4_000_000):
        for fan_out in (1, 10):
            medians = thread_medians(build_rows, fan_out)
            one = medians["cooperative", 1][0]
            together.append(medians["cooperative", 2][0] / one - 1)
            alone.append(medians["independent", 2][0] / one - 1)
    return (
        f"from {max(together):.0%} more to {-min(together):.0%} less, whether the index fits the caches or not, while"
        f" independent ones gain {min(alone):.0%} to {max(alone):.0%}"
    )


def _few_matches(archive: Archive) -> str:
    modes = ("adaptive", "morsel", "block", "materialize", "materialize_parallel")
    found = [rate for mode in modes for rate in rates(run for run in deliveries(mode, None, 0) if run["fan_out"] < 1)]
    return f"without a match: {min(found) / 1e6:.1f} to {max(found) / 1e6:.1f} million result rows per second"


def _slower(delivery: str) -> tuple[list[float], list[float]]:
    """Return how many times slower than `adaptive` a mode is: with at least one match per row, and with fewer."""
    found: tuple[list[float], list[float]] = ([], [])
    adaptive = {run["fan_out"]: run for run in deliveries("adaptive", None, 0)}
    for run in deliveries(delivery, None, 0):
        ratio = rates([adaptive[run["fan_out"]]])[0] / rates([run])[0]
        found[run["fan_out"] < 1].append(ratio)
    return found


def _tuples(archive: Archive) -> str:
    many, few = _slower("tuple")
    told = f"one tuple at a time is {_thousands(many)} times slower than `adaptive` here"
    return f"{told}, and {few[0]:.0f} times slower if nine rows in ten have no match"


def _thousands(values: Sequence[float]) -> str:
    return f"{min(values):,.0f} to {max(values):,.0f}"


def _blocks(archive: Archive) -> str:
    many, few = _slower("block")
    return f"Blocks of 1,024 rows are {min(many):.1f} to {max(many):.1f} times slower, and {few[0]:.1f} times slower"


CLAIMS: Mapping[str, Sequence[Claim]] = {
    "when-to-use.md": [
        _tpch,
        _by_setting,
        _comet_counts,
        _points,
        _crossing,
        _duckdb,
        _q06,
        _q20,
        _few_intervals,
    ],
    "delivery-study.md": [_few_matches, _threads, _tuples, _blocks],
}
"""The claims whose words each page has to contain."""

_CODE = re.compile(r"```.*?```", re.DOTALL)
_GENERATED = re.compile(r"<!-- (?:figures: \S+|generated by \S+) -->.*?<!-- end of [^>]* -->", re.DOTALL)


def prose(text: str) -> str:
    """Return the sentences of a page on one line, without code and generated tables."""
    return " ".join(_GENERATED.sub("", _CODE.sub("", text)).split())


def unfounded(page: str, text: str, archive: Archive) -> list[str]:
    """Return the figures in the sentences of a page without an archived result, with the words around them."""
    sentences = prose(text)
    known = [*(claim(archive) for claim in CLAIMS.get(page, ())), *NOT_MEASURED.get(page, {})]
    for words in known:
        sentences = sentences.replace(words, " ")
    return [sentences[max(0, match.start() - 40) : match.end() + 20] for match in FIGURE.finditer(sentences)]


def broken(page: str, text: str, archive: Archive) -> list[str]:
    """Return the words of claims and exceptions that a page does not contain."""
    known = [*(claim(archive) for claim in CLAIMS.get(page, ())), *NOT_MEASURED.get(page, {})]
    return [words for words in known if words not in prose(text)]
