"""Recent rows of a stream per bucket (`line` in the code): the counts of earlier batches decay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_KEPT = 0.8
"""Factor of the counts before a batch in the counts after it."""


@dataclass(frozen=True)
class LineRows:
    """Rows per order bucket, and rows of split order buckets per operator bucket (see `plans.streams.order_table`)."""

    orders: Mapping[int, int] = field(default_factory=dict)
    operators: Mapping[int, int] = field(default_factory=dict)

    def followed(self, came: Iterable[LineRows]) -> LineRows:
        """Return the counts after a batch, given the batch's counts in each partition."""
        slots = [*came]
        return LineRows(
            _followed(self.orders, [slot.orders for slot in slots]),
            _followed(self.operators, [slot.operators for slot in slots]),
        )

    def to_data(self) -> list[list[Sequence[int]]]:
        """Return plain data; `from_data` reads it back."""
        return [[*self.orders.items()], [*self.operators.items()]]

    @classmethod
    def from_data(cls, data: Any) -> LineRows:
        """Read what `to_data` returned."""
        return cls(*(dict(pairs) for pairs in data))


def _followed(before: Mapping[int, int], came: Iterable[Mapping[int, int]]) -> dict[int, int]:
    counts = Counter({line: int(rows * _KEPT) for line, rows in before.items()})
    for rows in came:
        counts.update(rows)
    return dict(sorted((+counts).items()))
