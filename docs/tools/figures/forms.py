"""Formats of figures: seconds, rates, factors."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean, median

from bench.report.result_files import Timed


def seconds(value: float) -> str:
    """Write seconds with at least two digits."""
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s" if value < 20 else f"{value:.0f} s"


def factor(value: float) -> str:
    """Write a speedup as a factor."""
    return f"{value:.2f}×" if value < 1 else f"{value:.1f}×" if value < 10 else f"{value:.0f}×"


def faster(value: float) -> str:
    """Write a speedup as a factor, followed by `faster`; below 1, its inverse, followed by `slower`."""
    return f"{factor(value)} faster" if value >= 1 else f"{factor(1 / value)} slower"


def median_seconds(timed: Timed) -> str:
    """Write the median of all runs."""
    return seconds(median(timed.seconds))


def million_rows(timed: Timed) -> str:
    """Write millions of rows per second, of the median run."""
    return f"{timed.rows / median(timed.seconds) / 1e6:.0f}"


def thousand_rows(timed: Timed) -> str:
    """Write thousands of rows per second, of the median run."""
    return f"{timed.rows / median(timed.seconds) / 1e3:.0f}"


def rows_per_second(value: float) -> str:
    """Write a rate, rounded to three significant digits."""
    digits = 10 ** max(0, len(str(int(value))) - 3)
    return f"{round(value / digits) * digits:,}"


def bounds(values: Sequence[float]) -> str:
    """Write the fastest and the slowest run."""
    return f"{seconds(min(values)).removesuffix(' s')} to {seconds(max(values))}"


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return geometric_mean(values)


def mib(size: float) -> str:
    """Write bytes as MiB."""
    return f"{size / 2**20:,.0f} MiB"
