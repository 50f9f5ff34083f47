"""Recent rows of a stream per bucket: the counts of earlier batches decay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_KEPT = 0.8
"""Factor of the counts before a batch in the counts after it."""


@dataclass(frozen=True)
class BucketRows:
    """Rows per order bucket, and rows of split order buckets per operator bucket (see `plans.streams.order_table`)."""

    orders: Mapping[int, int] = field(default_factory=dict)
    operators: Mapping[int, int] = field(default_factory=dict)

    def derive_next(self, came: Iterable[BucketRows]) -> BucketRows:
        """Return the counts after a batch, given the batch's counts in each partition."""
        partitions = [*came]
        return BucketRows(
            _decay_counts(self.orders, [partition.orders for partition in partitions]),
            _decay_counts(self.operators, [partition.operators for partition in partitions]),
        )

    def to_data(self) -> list[list[Sequence[int]]]:
        """Return plain data; `from_data` reads it back."""
        return [[*self.orders.items()], [*self.operators.items()]]

    @classmethod
    def from_data(cls, data: Any) -> BucketRows:
        """Read what `to_data` returned."""
        return cls(*(dict(pairs) for pairs in data))


def _decay_counts(before: Mapping[int, int], came: Iterable[Mapping[int, int]]) -> dict[int, int]:
    counts = Counter({bucket: int(rows * _KEPT) for bucket, rows in before.items()})
    for rows in came:
        counts.update(rows)
    return dict(sorted((+counts).items()))
