"""The worker function that sends rows, as blocks, to the partitions in which they are ordered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int32Array
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.partition import NO_BUCKET, assign_leading_buckets, order_by_partition
from sparkext.memory.probes import Tasks, process_probe
from sparkext.plans.shuffle.fragments import LEFT
from sparkext.plans.streams.order_table import BUCKETS, SPLIT, OrderTable
from sparkext.rows.fingerprints import hash_row_contents
from sparkext.rows.times import convert_to_microseconds
from sparkext.rows.types import conform_columns
from sparkext.shuffle.blocks import create_frame, create_index_frames
from sparkext.shuffle.outgoing_rows import gather_batches
from sparkext.shuffle.packed_rows import blocks_of, keep_order
from sparkext.streaming.ordered.description import BUCKET_FIELDS, OrderedRows, OrderedTask, Writers
from sparkext.streaming.state.micro_batch import MicroBatch

LATE = SPLIT + 1
"""The tag of late rows, which have no columns unless they are emitted. Other rows have the tags `WHOLE` and `SPLIT`."""


@dataclass(frozen=True)
class OrderedSendTask(OrderedTask):
    """Emits rows in frames, and each partition's index.

    `partition_keys[i]`: a key that Spark's shuffle maps to partition i.
    """

    partition_keys: tuple[int, ...]

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Send the rows of one Spark partition."""
        ordered = self.ordered
        batch = MicroBatch.of_this_task() if ordered.is_stream else None
        table = ordered.plan(None if batch is None else ordered.state(batch)).table
        sender = _RowSender(ordered, table, self.partition_keys, None if batch is None else batch.watermark())
        probe = process_probe()
        yield from create_index_frames(self.partition_keys)
        for rows in gather_batches(batches, ordered.cut.left, lambda: probe.headroom(tasks)):
            yield from sender.frames(conform_columns(rows.columns, ordered.input_schema))


class _RowSender:
    """Sends rows by one table. Rows up to the `watermark` (µs) are late; without one (None), no row is late."""

    def __init__(
        self, ordered: OrderedRows, table: OrderTable, partition_keys: tuple[int, ...], watermark: int | None
    ) -> None:
        self._ordered, self._partition_keys, self._watermark = ordered, partition_keys, watermark
        self._writers = Writers(ordered.partitions, table)
        grid = ordered.cut
        self._buckets = np.fromiter((grid.buckets(LEFT, writer).start for writer in range(grid.left)), np.uint16)
        self._homes = freeze(np.arange(grid.left, dtype=np.int32))

    def frames(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield rows in frames, each for one partition."""
        ordered = self._ordered
        buckets = ordered.order_keys.buckets(rows)[1]
        operator_buckets = self._find_operator_buckets(rows)
        writers = self._writers.of(buckets, operator_buckets)
        if self._watermark is not None:
            is_late = convert_to_microseconds(rows.column(ordered.order.time)) <= self._watermark
            writers = np.where(is_late, np.int32(NO_BUCKET), writers)
            if is_late.any():
                yield from self._create_late_frames(rows.filter(pa.array(is_late)))
        order = order_by_partition(freeze(writers), self._homes, self._homes.size, None)
        for field, numbers in zip(BUCKET_FIELDS, (buckets, operator_buckets), strict=True):
            rows = rows.append_column(field, pa.array(numbers.astype(np.uint16)))
        outgoing = ordered.rows.stored(rows).append_column("bucket", pa.array(self._buckets[writers]))
        for writer, block in blocks_of(outgoing, order):
            mode, partition = divmod(writer, ordered.partitions)
            yield create_frame(self._partition_keys[partition], mode, block)

    def _find_operator_buckets(self, rows: pa.RecordBatch) -> Int32Array:
        keys = self._ordered.operator_keys
        if keys is not None:
            return keys.buckets(rows)[1]
        return assign_leading_buckets(hash_row_contents(rows.columns, rows.num_rows), BUCKETS)

    def _create_late_frames(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        late = rows if self._ordered.keeps_late else rows.select([])
        for _, block in blocks_of(late, keep_order(rows.num_rows)):
            yield create_frame(self._partition_keys[0], LATE, block)
