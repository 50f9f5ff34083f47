"""Routing table of an exchange: the partitions that receive the rows of each bucket.

Paper 5 (`docs/papers.md`) calls a bucket a hash line. Every bucket has a home partition: its id modulo the number of
partitions. Only buckets elsewhere have an entry, which is removed when they return home. So a table of many buckets and
partitions is as small as the number of moved buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

Partitions = tuple[int, ...]

BUCKETS_PER_PARTITION = 16
"""Number of buckets per partition that makes partitions even when some buckets are moved."""

MANY_BUCKETS = 1 << 12
"""Number of buckets, a power of two, that is enough for most exchanges. It is the maximum if each bucket costs every
map task a block, else the minimum."""


@dataclass(frozen=True)
class RoutingTable:
    """The partitions of `buckets` buckets. Buckets and the `partitions` partitions are numbered from 0.

    `moved` has the partitions of each bucket that is not at home. If a bucket has several partitions, each of them has
    all of its build rows, and each of its probe rows goes to any one of them. `version` increases by one with each
    table that is derived from another.
    """

    buckets: int
    partitions: int
    moved: Mapping[int, Partitions] = field(default_factory=dict)
    version: int = 0

    def __post_init__(self) -> None:
        if self.buckets < 1 or self.partitions < 1:
            raise ValueError(
                f"a routing table needs a bucket and a partition, not {self.buckets} and {self.partitions}"
            )
        for bucket, partitions in self.moved.items():
            in_range = 0 <= bucket < self.buckets and all(0 <= partition < self.partitions for partition in partitions)
            if not partitions or len({*partitions}) < len(partitions) or not in_range:
                raise ValueError(
                    f"bucket {bucket} of {self.buckets} cannot go to partitions {partitions} of {self.partitions}"
                )

    def home(self, bucket: int) -> int:
        """Return the home partition of a bucket."""
        return bucket % self.partitions

    def partitions_of(self, bucket: int) -> Partitions:
        """Return the partitions of a bucket. Each of them has its build rows."""
        return self.moved.get(bucket) or (self.home(bucket),)

    def buckets_of(self, partition: int) -> Iterator[int]:
        """Yield the buckets that have rows in a partition, in no order."""
        for bucket in range(partition, self.buckets, self.partitions):
            if bucket not in self.moved:
                yield bucket
        for bucket, partitions in self.moved.items():
            if partition in partitions:
                yield bucket

    def derive_next(self, changes: Mapping[int, Partitions]) -> RoutingTable:
        """Return the next table, in which these buckets have other partitions."""
        moved = {**self.moved, **changes}
        away = {bucket: partitions for bucket, partitions in moved.items() if partitions != (self.home(bucket),)}
        return replace(self, moved=away, version=self.version + 1)
