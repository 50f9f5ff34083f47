"""Counts of executed cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts of queries, of the rows of their results, and of differences by kind."""

    queries: int = 0
    rows: int = 0
    differences: Counter[str] = field(default_factory=Counter)


def list_counts(title: str, counts: Counter[str]) -> list[str]:
    """Return lines with the largest counts first; none without counts."""
    return [f"{title}:", *(f"{count:>9,}  {name}" for name, count in counts.most_common())] if counts else []
