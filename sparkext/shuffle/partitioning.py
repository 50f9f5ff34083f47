"""The partitioning of one side of a join: its keys, and the mapping from buckets to partitions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int32Array, Int64Array
from sparkext.kernels.keys.normalised import cast_key, normalise_keys
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.partition import (
    MOST_BUCKETS,
    PartitionOrder,
    assign_buckets,
    hash_keys,
    order_by_partition,
)
from sparkext.plans.shuffle.routing import BUCKETS_PER_PARTITION, MANY_BUCKETS, RoutingTable
from sparkext.rows.fingerprints import hash_row_contents


def choose_bucket_count(partitions: int) -> int:
    """Return a number of buckets, a power of two, that is large enough to balance partitions by moving buckets."""
    least = max(MANY_BUCKETS, BUCKETS_PER_PARTITION * partitions)
    return min(1 << (least - 1).bit_length(), MOST_BUCKETS)


@dataclass(frozen=True)
class Partitioning:
    """The key columns of one side, and the routing table of its buckets.

    `key_types`: the types in which both sides compare keys. `keeps_unmatchable`: whether rows whose key cannot match
    (for example a null) are part of the result; otherwise they are dropped. `hash_mask` is as in
    `kernels.keys.hashing`.
    """

    key_columns: tuple[int, ...]
    key_types: tuple[pa.DataType, ...]
    null_safe: tuple[bool, ...]
    table: RoutingTable
    keeps_unmatchable: bool
    hash_mask: int

    def buckets(self, rows: pa.RecordBatch) -> tuple[Int64Array, Int32Array]:
        """Return the hash of each row's key, and its bucket. Without keys, both are 0 for all rows."""
        if not self.key_columns:
            return freeze(np.zeros(rows.num_rows, np.int64)), freeze(np.zeros(rows.num_rows, np.int32))
        columns = [
            cast_key(rows.column(number), key_type)
            for number, key_type in zip(self.key_columns, self.key_types, strict=True)
        ]
        keys = normalise_keys(columns, self.null_safe)
        hashes = hash_keys(keys, self.hash_mask)
        return hashes, assign_buckets(keys, hashes, self.table.buckets)

    def checksum(self, rows: pa.RecordBatch, hashes: Int64Array) -> int:
        """Return a checksum of the rows, independent of their order: of the keys or, without keys, of all columns.

        With keys, only the key values determine the partition of a row. Without keys, the task that sends the row
        determines it, so a task that runs again must have exactly the same rows.
        """
        if self.key_columns:
            return int(hashes.sum())  # may overflow
        return int(hash_row_contents(rows.columns, rows.num_rows).sum() + rows.num_rows)

    def order(self, buckets: Int32Array, task: int) -> PartitionOrder:
        """Sort rows by partition. Rows that cannot match are dropped, or sent to a partition that `task` determines.

        A task that runs again therefore sends every row to the same partition, whichever order its rows are in.
        """
        unmatchable_partition = task % self.table.partitions if self.keeps_unmatchable else None
        return order_by_partition(buckets, self._homes, self.table.partitions, unmatchable_partition)

    @cached_property
    def _homes(self) -> Int32Array:
        return homes_of(self.table)


def homes_of(table: RoutingTable) -> Int32Array:
    """Return the first partition of each bucket: int32[buckets]."""
    homes: Int32Array = np.arange(table.buckets, dtype=np.int32) % np.int32(table.partitions)
    homes[[*table.moved]] = [partitions[0] for partitions in table.moved.values()]
    return freeze(homes)
