"""Which rows of a pipeline come first, as plain data: what stands above it keeps no others.

    {"count": number, "order": [{"output": number, "ascending": bool, "nulls_first": bool}, ...]}

The order is Spark's: NaN is the largest number and equals itself, -0.0 equals 0.0, texts and binary values are compared
by their bytes. Of rows that are alike in all that they are ordered by, any come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_TOP_ROWS = 100_000
"""Workers keep up to twice as many rows, each in memory: where more are asked for, all rows go to Spark."""


@dataclass(frozen=True)
class OrderedBy:
    """One column of an order, by its number among the pipeline's outputs."""

    output: int
    ascending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Top:
    """The first `count` rows by `order`, whose first column decides, then the second, and so on.

    Raises
    ------
    ValueError
        It keeps no row, or orders by nothing.
    """

    count: int
    order: tuple[OrderedBy, ...]

    def __post_init__(self) -> None:
        """Refuse what no sink keeps."""
        if not 1 <= self.count <= MOST_TOP_ROWS:
            raise ValueError(f"expected 1 to {MOST_TOP_ROWS} rows to be kept, got {self.count}")
        if not self.order:
            raise ValueError("expected columns to order by, got none")


def parse_top(data: Mapping[str, Any]) -> Top:
    """Read the JSON form, which `dataclasses.asdict` writes. Raises `ValueError`."""
    return Top(data["count"], tuple(OrderedBy(**column) for column in data["order"]))
