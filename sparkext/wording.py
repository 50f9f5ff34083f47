"""Numbers, sizes, limits and tables as texts for users."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from decimal import Decimal

LIMITS: Mapping[str, str] = {
    "cgroup": "the container's limit (control group)",
    "rlimit_as": "the worker's address space (RLIMIT_AS, set by spark.executor.pyspark.memory)",
    "available": "the machine's available memory (MemAvailable)",
    "configured": "spark.sparkext.memory.maxBytes",
}
"""Descriptions of the limits of memory headroom, by their names in `memory.Headroom`."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_bytes(count: float) -> str:
    """Return a number of bytes in the largest unit in which it is at least 1."""
    unit = 0
    while abs(count) >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.1f} {_UNITS[unit]}" if unit else f"{count:.0f} {_UNITS[unit]}"


def format_ratio(value: float | None) -> str:
    """Return three significant digits without an exponent, all digits of a number from 1,000 on, or "" for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{Decimal(f'{value:.3g}'):f}"


def format_count(number: int, thing: str) -> str:
    """Return a number with its noun: `1 task`, `2 tasks`. `thing` is a word with a regular plural."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def abbreviate_number(number: float) -> str:
    """Return a number as a label of an axis: 20, 1k, 2.5M."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:g}{letter}"
    return f"{number:g}"


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Container[int] = (0,)) -> str:
    """Return a table as plain text. `left` has the indexes of the columns that are aligned left."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def format_markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    table = (header, ["---"] * len(header), *rows)
    return "\n".join(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|" for cells in table)
