"""Plain text tables."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Format `rows` under `header`. The first `left` columns are aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [_line(row, widths, left) for row in (header, *rows)]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _line(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    cells = [
        cell.ljust(width) if place < left else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def mib(size: float) -> str:
    """Format bytes as MiB."""
    return f"{size / 2**20:,.1f}"
