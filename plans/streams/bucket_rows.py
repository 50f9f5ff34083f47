"""Recent rows of a stream per bucket: the counts of earlier batches decay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_DECAY = 0.8
"""Factor of the counts before a batch in the counts after it."""


@dataclass(frozen=True)
class BucketRows:
    """Rows per order bucket, and rows of split order buckets per operator bucket (see `plans.streams.order_table`)."""

    orders: Mapping[int, int] = field(default_factory=dict)
    operators: Mapping[int, int] = field(default_factory=dict)

    def derive_next(self, batch_counts: Iterable[BucketRows]) -> BucketRows:
        """Return the counts after a batch, given the batch's counts in each partition."""
        partitions = [*batch_counts]
        return BucketRows(
            _decay_counts(self.orders, [partition.orders for partition in partitions]),
            _decay_counts(self.operators, [partition.operators for partition in partitions]),
        )

    def to_data(self) -> list[list[Sequence[int]]]:
        """Return plain data; `from_data` reads it back."""
        return [[*self.orders.items()], [*self.operators.items()]]

    @classmethod
    def from_data(cls, data: Any) -> BucketRows:
        """Read the result of `to_data`."""
        return cls(*(dict(pairs) for pairs in data))


def _decay_counts(previous: Mapping[int, int], batch_counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    counts = Counter({bucket: int(rows * _DECAY) for bucket, rows in previous.items()})
    for rows in batch_counts:
        counts.update(rows)
    return dict(sorted((+counts).items()))
