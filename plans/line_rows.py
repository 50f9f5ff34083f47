"""How many rows of a stream have come of each line lately: what came long ago counts less and less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_KEPT = 0.8
"""Of what is counted before a batch, in what is counted behind it."""


@dataclass(frozen=True)
class LineRows:
    """Rows by order line, and those of split lines by operator line, too."""

    orders: Mapping[int, int] = field(default_factory=dict)
    operators: Mapping[int, int] = field(default_factory=dict)

    def followed(self, came: Iterable[LineRows]) -> LineRows:
        """Return the counts behind a batch, of which each slot has counted what came there."""
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
