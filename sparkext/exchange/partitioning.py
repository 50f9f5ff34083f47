"""How one side of a join is partitioned: by which keys, and which number brings rows to each slot."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.jit import frozen
from sparkext.kernels.keys import cast_key, normalise_keys
from sparkext.kernels.partition import MOST_LINES, Int32Array, SlotOrder, hashes_of, lines_of, slot_order
from sparkext.plans.routing import RoutingTable
from sparkext.rows.fingerprints import row_hashes

_LEAST_LINES = 1 << 12
_LINES_PER_SLOT = 16


def line_count(slots: int) -> int:
    """Return how many lines are enough to even out so many slots by moving some: a power of two."""
    wanted = max(_LEAST_LINES, _LINES_PER_SLOT * slots)
    return min(1 << (wanted - 1).bit_length(), MOST_LINES)


@dataclass(frozen=True)
class Partitioning:
    """The keys of one side, which of its columns they are, and where their lines go.

    `key_types` are the types in which both sides compare them. `keeps_unmatchable`: whether rows whose key matches
    nothing come out of the join all the same; else they are left out. `hash_mask` is as in `kernels.hashing`.
    """

    key_columns: tuple[int, ...]
    key_types: tuple[pa.DataType, ...]
    null_safe: tuple[bool, ...]
    table: RoutingTable
    keeps_unmatchable: bool
    hash_mask: int

    def lines(self, rows: pa.RecordBatch) -> tuple[Int64Array, Int32Array]:
        """Return the hash of each row's key, and its line. Without keys, all rows have one."""
        if not self.key_columns:
            return frozen(np.zeros(rows.num_rows, np.int64)), frozen(np.zeros(rows.num_rows, np.int32))
        columns = [
            cast_key(rows.column(number), key_type)
            for number, key_type in zip(self.key_columns, self.key_types, strict=True)
        ]
        keys = normalise_keys(columns, self.null_safe)
        hashes = hashes_of(keys, self.hash_mask)
        return hashes, lines_of(keys, hashes, self.table.lines)

    def checksum(self, rows: pa.RecordBatch, hashes: Int64Array) -> int:
        """Return a number that only the same rows have, in any order: by their keys, or, without, by all they hold.

        Only keys decide where a row goes. Without keys, the task does, and who has read its rows once must find the
        same when it runs again.
        """
        if self.key_columns:
            return int(hashes.sum())  # and overflows
        return int(row_hashes(rows.columns, rows.num_rows).sum() + rows.num_rows)

    def order(self, lines: Int32Array, task: int) -> SlotOrder:
        """Order rows by slots. Those that match nothing stay together with those of this task, by its number.

        So a task that runs once more sends every row to where it went before, in whichever order they come.
        """
        nowhere = task % self.table.slots if self.keeps_unmatchable else None
        return slot_order(lines, self._homes, self.table.slots, nowhere)

    @cached_property
    def _homes(self) -> Int32Array:
        return homes_of(self.table)


def homes_of(table: RoutingTable) -> Int32Array:
    """Return the first slot of each line: int32[lines]."""
    homes: Int32Array = np.arange(table.lines, dtype=np.int32) % np.int32(table.slots)
    homes[[*table.moved]] = [slots[0] for slots in table.moved.values()]
    return frozen(homes)
