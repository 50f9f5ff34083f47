"""Integer keys that Spark's hash partitioning sends to given partitions, so that a row's key chooses its partition.

All versions of Spark have this partitioning, classic and Connect. Adaptive execution does not change partitions if
their number is passed to `repartition`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SEED = 42
_CANDIDATES_PER_PARTITION = 16


def find_partition_keys(partitions: int) -> tuple[int, ...]:
    """Return an integer key for each partition: `repartition(partitions, key)` sends rows with it to that partition."""
    keys = np.full(partitions, -1, dtype=np.int64)
    start = 0
    while (keys < 0).any():
        candidates = np.arange(start, start + _CANDIDATES_PER_PARTITION * partitions, dtype=np.int64)
        targets = _hash_murmur3(candidates.astype(np.uint32)).astype(np.int64) % partitions
        partition_ids, first = np.unique(targets, return_index=True)
        keys[partition_ids] = np.where(keys[partition_ids] < 0, candidates[first], keys[partition_ids])
        start += candidates.size
    return tuple(keys.tolist())


def _hash_murmur3(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """Hash 32-bit integers as Spark does (Murmur3_x86_32)."""
    k = values * np.uint32(0xCC9E2D51)
    k = _rotate_bits(k, 15) * np.uint32(0x1B873593)
    h = _rotate_bits(np.uint32(_SEED) ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    h ^= np.uint32(4)  # bytes
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    hashed: npt.NDArray[np.int32] = (h ^ (h >> np.uint32(16))).view(np.int32)
    return hashed


def _rotate_bits(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    rotated: npt.NDArray[np.uint32] = (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
    return rotated
