"""The first rows of a pipeline by some order, as plain data: the operators above the pipeline need no other rows.

    {"count": number, "order": [{"output": number, "ascending": bool, "nulls_first": bool}, ...]}

The order is Spark's: NaN is the largest number and equals itself, -0.0 equals 0.0, texts and binary values are compared
by their bytes. Among rows with equal values in all order columns, any may come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_TOP_ROWS = 100_000
"""Each worker holds up to twice this number of rows in memory. If a query requests more, all rows are sent to Spark."""


@dataclass(frozen=True)
class OrderColumn:
    """One column of an order. `output` is its position among the pipeline's outputs."""

    output: int
    ascending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Top:
    """The first `count` rows, ordered by the first column of `order`, then by the second, and so on.

    Raises
    ------
    ValueError
        `count` is out of range, or `order` is empty.
    """

    count: int
    order: tuple[OrderColumn, ...]

    def __post_init__(self) -> None:
        """Refuse a count out of range, and an empty order."""
        if not 1 <= self.count <= MOST_TOP_ROWS:
            raise ValueError(f"expected 1 to {MOST_TOP_ROWS} rows to be kept, got {self.count}")
        if not self.order:
            raise ValueError("expected columns to order by, got none")


def parse_top(data: Mapping[str, Any]) -> Top:
    """Read the JSON form, which `dataclasses.asdict` writes. Raises `ValueError`."""
    return Top(data["count"], tuple(OrderColumn(**column) for column in data["order"]))
