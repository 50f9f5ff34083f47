"""The bucket of each row, and rows in the order of their partitions.

    keys ──▶ hash ──▶ bucket (some of its bits) ──▶ partition (by a table) ──▶ rows of partition 0, of partition 1, …

Paper 5 (`docs/papers.md`) calls a bucket a hash line. Equal keys have the same bucket on both sides of a join, if both
sides are normalised alike. The bucket and the home slot in a hash index use different bits of the hash; otherwise the
keys of a partition would have only few home slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkext.kernels.columns.buffers import Int32Array, Int64Array, UInt8Array
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.keys.hashing import FULL_MASK, hash_rows, hash_words
from sparkext.kernels.keys.normalised import NormalisedKeys
from sparkext.kernels.runtime.jit import freeze, kernel

MOST_BUCKETS = 1 << 24
NO_BUCKET = -1
"""The bucket of a key that matches nothing."""

_FIRST_BIT = np.uint64(16)


@dataclass(frozen=True)
class PartitionOrder:
    """The rows of each partition: `rows[starts[i]:starts[i + 1]]` for partition i, in their original order.

    `rows` is RowIds[k], `starts` int64[partitions + 1].
    """

    rows: RowIds
    starts: Int64Array


def hash_keys(keys: NormalisedKeys, mask: int = FULL_MASK) -> Int64Array:
    """Return the hash of each key, int64[n], from which its bucket is derived."""
    if keys.words is not None:
        return hash_words(keys.words, mask)
    assert keys.rows is not None, "keys are words, or bytes"
    return hash_rows(keys.rows, mask)


def assign_buckets(keys: NormalisedKeys, hashes: Int64Array, buckets: int) -> Int32Array:
    """Return the bucket of each key by its hash, int32[n]; `NO_BUCKET` if the key matches nothing.

    Raises
    ------
    ValueError
        `buckets` is not a power of two, or is above `MOST_BUCKETS`.
    """
    if not 1 <= buckets <= MOST_BUCKETS or buckets & (buckets - 1):
        raise ValueError(f"buckets are a power of two up to {MOST_BUCKETS}, not {buckets}")
    out = np.empty(keys.length, dtype=np.int32)
    _write_buckets(hashes, keys.mask, np.uint64(buckets - 1), out)
    return freeze(out)


def assign_leading_buckets(hashes: Int64Array, buckets: int) -> Int32Array:
    """Return the bucket of each hash by its leading bits, int32[n]. `buckets` is a power of two."""
    shift = np.uint64(64 - (buckets.bit_length() - 1))
    assigned: Int32Array = (hashes.view(np.uint64) >> shift).astype(np.int32)
    return assigned


def order_by_partition(buckets: Int32Array, homes: Int32Array, partitions: int, fallback: int | None) -> PartitionOrder:
    """Return the rows in the order of partitions. `homes` (int32[buckets]) has the partition of each bucket.

    `fallback`: the partition of rows without a bucket; None to leave them out.
    """
    starts = np.zeros(partitions + 1, dtype=np.int64)
    targets = np.empty(buckets.size, dtype=np.int32)
    _count(buckets, homes, np.int32(-1 if fallback is None else fallback), targets, starts)
    rows = np.empty(int(starts[-1]), dtype=row_id_dtype(buckets.size))
    _distribute(targets, starts[:-1].copy(), rows)
    return PartitionOrder(freeze(rows), freeze(starts))


@kernel
def _write_buckets(hashes: Int64Array, valid: UInt8Array, last: np.uint64, out: Int32Array) -> None:
    all_valid = valid.size == 0
    for i in range(out.size):
        bucket = np.int32((np.uint64(hashes[i]) >> _FIRST_BIT) & last)
        out[i] = bucket if all_valid or valid[i] != 0 else NO_BUCKET


@kernel
def _count(buckets: Int32Array, homes: Int32Array, nowhere: np.int32, targets: Int32Array, starts: Int64Array) -> None:
    """Write the partition of each row, and the start of each partition's rows."""
    for i in range(buckets.size):
        partition = nowhere if buckets[i] < 0 else homes[buckets[i]]
        targets[i] = partition
        if partition >= 0:
            starts[partition + 1] += 1
    for partition in range(starts.size - 1):
        starts[partition + 1] += starts[partition]


@kernel
def _distribute(targets: Int32Array, cursor: Int64Array, rows: RowIds) -> None:
    """Write each row id at the cursor of its partition."""
    for i in range(targets.size):
        partition = targets[i]
        if partition >= 0:
            rows[cursor[partition]] = i
            cursor[partition] += 1
