"""The worker function that sends the rows of a stream to the partitions of a join, as blocks.

    rows ──▶ fingerprint ──▶ bucket ──▶ fragment ──▶ every partition with a unit of this fragment

Without a key, buckets are pseudo-random. The bucket depends on the row's fingerprint and on the number of equal
fingerprints before it, so a task that runs again assigns the same buckets, even if its rows are in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.engine.worker_task import task_id
from sparkext.kernels.columns.buffers import Int32Array
from sparkext.kernels.keys.hashing import hash_words
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.occurrences import Occurrences
from sparkext.kernels.shuffle.partition import NO_BUCKET, assign_leading_buckets, order_by_partition
from sparkext.memory.probes import Tasks, process_probe
from sparkext.plans.shuffle.fragments import BUCKETS, GridShape
from sparkext.rows.fingerprints import hash_row_contents
from sparkext.rows.times import convert_to_microseconds
from sparkext.rows.types import conform_columns
from sparkext.shuffle.blocks import create_frame, create_index_frames
from sparkext.shuffle.outgoing_rows import gather_batches
from sparkext.shuffle.packed_rows import blocks_of
from sparkext.streaming.join.description import StreamJoin, StreamTask
from sparkext.streaming.state.micro_batch import MicroBatch
from sparkext.streaming.state.segments import checksum_of

_SALT = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class StreamJoinSendTask(StreamTask):
    """Emits the rows of a side in frames, and each partition's index.

    The tag of a frame is its fragment, times two, plus its side. The note of a block is the sum of its rows'
    fingerprints. `partition_keys[i]`: a key that Spark's shuffle maps to partition i.
    """

    side: int
    partition_keys: tuple[int, ...]

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Send the rows of one Spark partition."""
        batch = MicroBatch.of_this_task()
        grid = self.join.state(batch).cut
        buckets = _Buckets(self.join, self.side, batch)
        probe = process_probe()
        yield from create_index_frames(self.partition_keys)
        for rows in gather_batches(batches, grid.fragments(self.side), lambda: probe.headroom(tasks)):
            yield from self._create_frames(rows, buckets, grid)

    def _create_frames(self, rows: pa.RecordBatch, buckets: _Buckets, grid: GridShape) -> Iterator[pa.RecordBatch]:
        rows = conform_columns(rows.columns, self.join.sides[self.side].rows)
        row_buckets = buckets.of(rows)
        count = grid.fragments(self.side)
        homes = freeze((np.arange(BUCKETS, dtype=np.int64) * count // BUCKETS).astype(np.int32))
        order = order_by_partition(row_buckets, homes, count, None)
        stored = self.join.sides[self.side].stored(rows)
        outgoing = stored.append_column("bucket", pa.array(row_buckets.astype(np.uint16)))
        hashes = hash_row_contents(outgoing.columns, outgoing.num_rows)[order.rows]
        for fragment, block in blocks_of(outgoing, order, lambda start, stop: checksum_of(hashes[start:stop])):
            for partition in grid.partitions(self.side, fragment, self.join.partitions):
                yield create_frame(self.partition_keys[partition], 2 * fragment + self.side, block)


@dataclass(frozen=True)
class PartitionIdsTask(StreamTask):
    """Sends each partition its index only. `partition_keys` are as in `StreamJoinSendTask`."""

    partition_keys: tuple[int, ...]

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Consume the input and send the indexes."""
        for _ in batches:
            pass
        yield from create_index_frames(self.partition_keys)


class _Buckets:
    """Maps the rows of a task to buckets, and finds late rows."""

    def __init__(self, join: StreamJoin, side: int, batch: MicroBatch) -> None:
        self._keys = None if join.keys is None else join.keys[side]
        self._event_time = join.sides[side].event_time
        self._watermark = 0 if self._event_time is None else batch.watermark()
        self._occurrences = Occurrences()
        self._salt = np.int64((batch.number * _SALT + task_id().partition) % (1 << 62))

    def of(self, rows: pa.RecordBatch) -> Int32Array:
        """Return the buckets of rows. Rows with `NO_BUCKET` are not sent."""
        if self._keys is None:
            buckets = self._draw_buckets(rows)
        else:
            buckets = self._keys.buckets(rows)[1]
            if self._keys.keeps_unmatchable:
                buckets = np.where(buckets == NO_BUCKET, self._draw_buckets(rows), buckets)
        if self._event_time is not None:
            buckets = np.where(self._is_late(rows.column(self._event_time)), np.int32(NO_BUCKET), buckets)
        return freeze(buckets)

    def _draw_buckets(self, rows: pa.RecordBatch) -> Int32Array:
        hashes = hash_row_contents(rows.columns, rows.num_rows)
        draws = hash_words(freeze(hashes ^ hash_words(freeze(self._occurrences.number(hashes) + self._salt))))
        return assign_leading_buckets(draws, BUCKETS)

    def _is_late(self, times: pa.Array) -> Any:
        """Return which rows are late by Spark's definition: up to the watermark, or with a null time."""
        return convert_to_microseconds(times, missing=-(1 << 63)) <= self._watermark
