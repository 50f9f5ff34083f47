"""The worker function that sends the rows of a stream to the partitions of a join, as blocks (`cell` in the code).

    rows ──▶ fingerprint ──▶ bucket (`line`) ──▶ fragment ──▶ every partition (`slot`) with a unit of this fragment

Without a key, buckets are pseudo-random. The bucket depends on the row's fingerprint and on the number of equal
fingerprints before it, so a task that runs again assigns the same buckets, whichever order its rows are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.engine.worker_task import task_id
from sparkext.kernels.keys.hashing import hash_words
from sparkext.kernels.runtime.jit import frozen
from sparkext.kernels.shuffle.occurrences import Occurrences
from sparkext.kernels.shuffle.partition import NO_LINE, Int32Array, leading_lines, slot_order
from sparkext.memory.probes import Tasks, process_probe
from sparkext.plans.streams.fragments import LEFT, LINES, Cut
from sparkext.rows.fingerprints import row_hashes
from sparkext.rows.morsels import within_bytes
from sparkext.rows.times import microseconds
from sparkext.rows.types import conformed
from sparkext.shuffle.blocks import CELL_BYTES, cell_of, cell_row
from sparkext.shuffle.outgoing_rows import gathered
from sparkext.streaming.join.description import StreamJoin, StreamTask
from sparkext.streaming.state.micro_batch import MicroBatch
from sparkext.streaming.state.segments import checksum_of

COLUMNS = ("slot", "side", "fragment", "checksum", "cell")
"""The columns of blocks: a key that Spark's shuffle maps to the partition, the side, the fragment, the sum of the rows'
fingerprints, and the block. Every task also sends each partition a row without a fragment, with the partition's index
as its checksum: if Spark coalesces partitions, a task cannot derive the index from its own partition number."""

NO_FRAGMENT = -1

DDL = "slot int, side int, fragment int, checksum bigint, cell binary"

_KINDS = (pa.int32(), pa.int32(), pa.int32(), pa.int64())
_NO_CELL = pa.py_buffer(b"")
_SALT = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class StreamCellsTask(StreamTask):
    """Emits the rows of a side in blocks. `slot_keys[i]`: a key that Spark's shuffle maps to partition i."""

    side: int
    slot_keys: tuple[int, ...]

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Send the rows of one Spark partition."""
        batch = MicroBatch.of_this_task()
        cut = self.join.state(batch).cut
        lines = _Lines(self.join, self.side, batch)
        probe = process_probe()
        yield from _slot_numbers(self.slot_keys)
        for rows in gathered(batches, cut.fragments(self.side), lambda: probe.headroom(tasks)):
            yield from self._cells(rows, lines, cut)

    def _cells(self, rows: pa.RecordBatch, lines: _Lines, cut: Cut) -> Iterator[pa.RecordBatch]:
        rows = conformed(rows.columns, self.join.sides[self.side].rows)
        found = lines.of(rows)
        count = cut.fragments(self.side)
        homes = frozen((np.arange(LINES, dtype=np.int64) * count // LINES).astype(np.int32))
        order = slot_order(found, homes, count, None)
        taken = pa.array(order.rows)
        stored = self.join.sides[self.side].stored(rows.take(taken))
        in_order = stored.append_column("line", pa.array(found.take(order.rows).astype(np.uint16)))
        hashes = row_hashes(in_order.columns, in_order.num_rows)
        for fragment in range(count):
            at, stop = int(order.starts[fragment]), int(order.starts[fragment + 1])
            slots = cut.slots(self.side, fragment, self.join.slots)
            for piece in within_bytes(in_order.slice(at, stop - at), CELL_BYTES):
                if piece.num_rows:
                    cell, checksum = cell_of(piece), checksum_of(hashes[at : at + piece.num_rows])
                    at += piece.num_rows
                    for slot in slots:
                        yield _row(self.slot_keys[slot], self.side, fragment, checksum, cell)


@dataclass(frozen=True)
class SlotNumbersTask(StreamTask):
    """Sends each partition its index only. `slot_keys` are as in `StreamCellsTask`."""

    slot_keys: tuple[int, ...]

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Consume the input and send the indexes."""
        for _ in batches:
            pass
        yield from _slot_numbers(self.slot_keys)


def _slot_numbers(slot_keys: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
    for slot, key in enumerate(slot_keys):
        yield _row(key, LEFT, NO_FRAGMENT, slot, _NO_CELL)


def _row(key: int, side: int, fragment: int, checksum: int, cell: pa.Buffer) -> pa.RecordBatch:
    return cell_row(COLUMNS, _KINDS, (key, side, fragment, int(np.uint64(checksum).view(np.int64))), cell)


class _Lines:
    """Maps the rows of a task to buckets, and finds late rows."""

    def __init__(self, join: StreamJoin, side: int, batch: MicroBatch) -> None:
        self._keys = None if join.keys is None else join.keys[side]
        self._event_time = join.sides[side].event_time
        self._watermark = 0 if self._event_time is None else batch.watermark()
        self._seen = Occurrences()
        self._salt = np.int64((batch.number * _SALT + task_id().partition) % (1 << 62))

    def of(self, rows: pa.RecordBatch) -> Int32Array:
        """Return the buckets of rows. Rows with `NO_LINE` are not sent."""
        if self._keys is None:
            lines = self._drawn(rows)
        else:
            lines = self._keys.lines(rows)[1]
            if self._keys.keeps_unmatchable:
                lines = np.where(lines == NO_LINE, self._drawn(rows), lines)
        if self._event_time is not None:
            lines = np.where(self._is_late(rows.column(self._event_time)), np.int32(NO_LINE), lines)
        return frozen(lines)

    def _drawn(self, rows: pa.RecordBatch) -> Int32Array:
        hashes = row_hashes(rows.columns, rows.num_rows)
        drawn = hash_words(frozen(hashes ^ hash_words(frozen(self._seen.number(hashes) + self._salt))))
        return leading_lines(drawn, LINES)

    def _is_late(self, times: pa.Array) -> Any:
        """Return which rows are late by Spark's definition: up to the watermark, or with a null time."""
        return microseconds(times, missing=-(1 << 63)) <= self._watermark
