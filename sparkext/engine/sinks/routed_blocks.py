"""A sink of rows that are streamed to partitions, as blocks of one bucket each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock

import numpy as np
import pyarrow as pa

from sparkext.engine.nodes import Sink
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.sinks.gathered_rows import GatheredRows
from sparkext.engine.worker_task import task_id
from sparkext.memory.freed import FreeMemory, headroom_for
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.row_set import RowSet
from sparkext.shuffle.outgoing_rows import gathered_bytes
from sparkext.shuffle.packed_rows import pack_blocks
from sparkext.shuffle.partitioning import Partitioning
from sparkext.shuffle.router import Router
from sparkext.shuffle.streamed import ROUTED, StreamedExchange, TaskFiles

_BYTES_PER_BUCKET = 512 << 10
_MOST_BYTES = 256 << 20
"""Limit of the rows that are gathered before they are sorted by bucket. Joining a block costs 0.3 ms plus 11 ns per row
(4 columns)."""

_SHARE_OF_HEADROOM = 0.05


@dataclass(frozen=True)
class OutgoingStream:
    """The partitioning of streamed rows. `way`: the mode, as in `spark.sparkext.debug.partitions`."""

    partitioning: Partitioning
    streamed: StreamedExchange
    way: str

    def open(self, rows: Sink, free: FreeMemory) -> Sink:
        """Return the sink that routes the rows."""
        assert isinstance(rows, GatheredRows), "whole rows are sent"
        return RoutedBlocks(rows, self, free)


class RoutedBlocks:
    """Emits all rows in blocks, with the target partition of each."""

    def __init__(self, rows: GatheredRows, routed: OutgoingStream, free: FreeMemory) -> None:
        """Bind it to the outgoing columns."""
        self._gathered = rows
        self._partitioning = routed.partitioning
        self._router = Router(routed.streamed, TaskFiles(routed.streamed.run), routed.way, task_id().partition)
        self.row_bytes = rows.row_bytes
        self.copies = rows.copies
        self._free = free
        self._turn = Lock()
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._limit = 0

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Gather rows; emit blocks when there are enough."""
        for batch in self._gathered.process(rows, budget):
            blocks = None
            with self._turn:
                if not self._waiting:
                    self._limit = self._bytes_to_gather()
                self._waiting.append(batch)
                self._bytes += gathered_bytes(batch)
                if self._bytes >= self._limit:
                    blocks = self._blocks(budget)
            if blocks is not None:
                yield blocks

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Emit the gathered rows."""
        if self._waiting:
            yield self._blocks(budget)

    def _bytes_to_gather(self) -> int:
        wanted = min(self._partitioning.table.buckets * _BYTES_PER_BUCKET, _MOST_BYTES)
        headroom = headroom_for(int(wanted / _SHARE_OF_HEADROOM), self._free)
        return wanted if headroom is None else min(wanted, int(headroom * _SHARE_OF_HEADROOM))

    def _blocks(self, budget: OperatorBudget) -> pa.RecordBatch:
        """Return the gathered rows as blocks, which share one contiguous buffer."""
        started = time.perf_counter()
        table = pa.Table.from_batches(self._waiting)
        self._waiting, self._bytes = [], 0
        rows = pa.RecordBatch.from_arrays(
            [make_contiguous(column) for column in table.columns], names=table.column_names
        )
        order = self._partitioning.order(self._partitioning.buckets(rows)[1], task_id().partition)
        self._router.look()
        run, packed = pack_blocks(rows, order) if order.rows.size else (pa.py_buffer(b""), [])
        counts = np.diff(order.starts)
        present = np.flatnonzero(counts)
        self._router.tell(present.tolist(), counts[present].tolist())
        buckets = [block.bucket for block in packed]
        partitions = [self._router.partition(bucket) for bucket in buckets]
        ends = np.array([*(block.start for block in packed), run.size], np.int32)
        blocks = pa.Array.from_buffers(pa.binary(), len(packed), [None, pa.py_buffer(ends), run])
        budget.add_time_since(started)
        return pa.RecordBatch.from_arrays(
            [pa.array(partitions, pa.int32()), pa.array(buckets, pa.int32()), blocks], schema=ROUTED
        )
