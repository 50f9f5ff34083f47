"""Which hash line a row belongs to, and rows in the order of the slots that they go to.

    keys ──▶ hash ──▶ line (some bits of it) ──▶ slot (a table has one for each line) ──▶ rows of slot 0, of slot 1, …

Equal keys have one line, whichever side of a join they are on, as long as both are normalised alike. The bits are not
those by which an index chooses its buckets, or all rows of a slot would fall into few of these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparkext.kernels.buffers import Int64Array, UInt8Array
from sparkext.kernels.hashing import FULL_MASK, hash_rows, hash_words
from sparkext.kernels.jit import frozen, kernel
from sparkext.kernels.keys import NormalisedKeys
from sparkext.kernels.row_ids import RowIds, row_id_dtype

Int32Array = npt.NDArray[np.int32]

MOST_LINES = 1 << 24
NO_LINE = -1
"""In place of a line, of a key that matches nothing."""

_FIRST_BIT = np.uint64(16)


@dataclass(frozen=True)
class SlotOrder:
    """The rows of each slot: those of slot i are `rows[starts[i]:starts[i + 1]]`, in the order that they came in.

    `rows` is RowIds[k], `starts` int64[slots + 1].
    """

    rows: RowIds
    starts: Int64Array


def hashes_of(keys: NormalisedKeys, mask: int = FULL_MASK) -> Int64Array:
    """Return the hash of each key, int64[n], which its line is made of."""
    if keys.words is not None:
        return hash_words(keys.words, mask)
    assert keys.rows is not None, "keys are words, or bytes"
    return hash_rows(keys.rows, mask)


def lines_of(keys: NormalisedKeys, hashes: Int64Array, lines: int) -> Int32Array:
    """Return the line of each key by its hash, int32[n]: `NO_LINE` where it matches nothing. `lines` is a power of two.

    Raises
    ------
    ValueError
        It is none, or is above `MOST_LINES`.
    """
    if not 1 <= lines <= MOST_LINES or lines & (lines - 1):
        raise ValueError(f"lines are a power of two up to {MOST_LINES}, not {lines}")
    out = np.empty(keys.length, dtype=np.int32)
    _lines(hashes, keys.mask, np.uint64(lines - 1), out)
    return frozen(out)


def leading_lines(hashes: Int64Array, lines: int) -> Int32Array:
    """Return the line of each hash by its leading bits, int32[n]. `lines` is a power of two."""
    shift = np.uint64(64 - (lines.bit_length() - 1))
    found: Int32Array = (hashes.view(np.uint64) >> shift).astype(np.int32)
    return found


def slot_order(lines: Int32Array, homes: Int32Array, slots: int, nowhere: int | None) -> SlotOrder:
    """Order rows by slots. `homes` (int32[lines]) has the slot of each line.

    `nowhere`: the slot of rows without a line, None where they are left out.
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
    """Find the slot of each row, and where the rows of each slot start."""
    for i in range(lines.size):
        slot = nowhere if lines[i] < 0 else homes[lines[i]]
        targets[i] = slot
        if slot >= 0:
            starts[slot + 1] += 1
    for slot in range(starts.size - 1):
        starts[slot + 1] += starts[slot]


@kernel
def _distribute(targets: Int32Array, cursor: Int64Array, rows: RowIds) -> None:
    """Write the number of each row where its slot has come to."""
    for i in range(targets.size):
        slot = targets[i]
        if slot >= 0:
            rows[cursor[slot]] = i
            cursor[slot] += 1
