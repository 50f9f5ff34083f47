"""The bucket of each row, and rows in the order of their partitions.

A bucket is a `line` in the code ("hash line" in paper 5), a partition a `slot`.

    keys ──▶ hash ──▶ bucket (some of its bits) ──▶ partition (by a table) ──▶ rows of partition 0, of partition 1, …

Equal keys have the same bucket on both sides of a join, if both sides are normalised alike. The bucket and the home
slot in a hash index use different bits of the hash; otherwise the keys of a partition would have only few home slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.keys.hashing import FULL_MASK, hash_rows, hash_words
from sparkext.kernels.keys.normalised import NormalisedKeys
from sparkext.kernels.runtime.jit import frozen, kernel

Int32Array = npt.NDArray[np.int32]

MOST_LINES = 1 << 24
NO_LINE = -1
"""The bucket of a key that matches nothing."""

_FIRST_BIT = np.uint64(16)


@dataclass(frozen=True)
class SlotOrder:
    """The rows of each partition: `rows[starts[i]:starts[i + 1]]` for partition i, in their original order.

    `rows` is RowIds[k], `starts` int64[slots + 1].
    """

    rows: RowIds
    starts: Int64Array


def hashes_of(keys: NormalisedKeys, mask: int = FULL_MASK) -> Int64Array:
    """Return the hash of each key, int64[n], from which its bucket is derived."""
    if keys.words is not None:
        return hash_words(keys.words, mask)
    assert keys.rows is not None, "keys are words, or bytes"
    return hash_rows(keys.rows, mask)


def lines_of(keys: NormalisedKeys, hashes: Int64Array, lines: int) -> Int32Array:
    """Return the bucket of each key by its hash, int32[n]; `NO_LINE` if the key matches nothing.

    Raises
    ------
    ValueError
        `lines` is not a power of two, or is above `MOST_LINES`.
    """
    if not 1 <= lines <= MOST_LINES or lines & (lines - 1):
        raise ValueError(f"lines are a power of two up to {MOST_LINES}, not {lines}")
    out = np.empty(keys.length, dtype=np.int32)
    _lines(hashes, keys.mask, np.uint64(lines - 1), out)
    return frozen(out)


def leading_lines(hashes: Int64Array, lines: int) -> Int32Array:
    """Return the bucket of each hash by its leading bits, int32[n]. `lines` is a power of two."""
    shift = np.uint64(64 - (lines.bit_length() - 1))
    found: Int32Array = (hashes.view(np.uint64) >> shift).astype(np.int32)
    return found


def slot_order(lines: Int32Array, homes: Int32Array, slots: int, nowhere: int | None) -> SlotOrder:
    """Return the rows in the order of partitions. `homes` (int32[lines]) has the partition of each bucket.

    `nowhere`: the partition of rows without a bucket; None to leave them out.
    """
    starts = np.zeros(slots + 1, dtype=np.int64)
    targets = np.empty(lines.size, dtype=np.int32)
    _count(lines, homes, np.int32(-1 if nowhere is None else nowhere), targets, starts)
    rows = np.empty(int(starts[-1]), dtype=row_id_dtype(lines.size))
    _distribute(targets, starts[:-1].copy(), rows)
    return SlotOrder(frozen(rows), frozen(starts))


@kernel
def _lines(hashes: Int64Array, valid: UInt8Array, last: np.uint64, out: Int32Array) -> None:
    all_valid = valid.size == 0
    for i in range(out.size):
        line = np.int32((np.uint64(hashes[i]) >> _FIRST_BIT) & last)
        out[i] = line if all_valid or valid[i] != 0 else NO_LINE


@kernel
def _count(lines: Int32Array, homes: Int32Array, nowhere: np.int32, targets: Int32Array, starts: Int64Array) -> None:
    """Write the partition of each row, and the start of each partition's rows."""
    for i in range(lines.size):
        slot = nowhere if lines[i] < 0 else homes[lines[i]]
        targets[i] = slot
        if slot >= 0:
            starts[slot + 1] += 1
    for slot in range(starts.size - 1):
        starts[slot + 1] += starts[slot]


@kernel
def _distribute(targets: Int32Array, cursor: Int64Array, rows: RowIds) -> None:
    """Write each row id at the cursor of its partition."""
    for i in range(targets.size):
        slot = targets[i]
        if slot >= 0:
            rows[cursor[slot]] = i
            cursor[slot] += 1
