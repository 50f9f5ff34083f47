"""A sink of rows for other tasks: gathers them until they fill blocks, which have the rows of one bucket each."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from threading import Lock

import pyarrow as pa

from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.sinks.gathered_rows import GatheredRows
from sparkext.rows.batching import Batcher
from sparkext.rows.morsels import combine_batches
from sparkext.rows.row_set import RowSet
from sparkext.shuffle.outgoing_rows import gathered_bytes
from sparkext.shuffle.partitioning import Partitioning


class PackedSink(ABC):
    """Packs rows in groups of at most `limit()` bytes (see `gathered_bytes`); one thread packs at a time."""

    def __init__(self, rows: GatheredRows, partitioning: Partitioning, limit: Callable[[], int]) -> None:
        """Bind it to the outgoing columns."""
        self._gathered = rows
        self._partitioning = partitioning
        self.row_bytes = rows.row_bytes
        self.copies = rows.copies
        self._turn = Lock()
        self._waiting = Batcher[pa.RecordBatch](lambda batch: (gathered_bytes(batch),), lambda: (limit(),))

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Gather rows; pack them when there are enough."""
        for batch in self._gathered.process(rows, budget):
            with self._turn:
                blocks = self._pack_group(self._waiting.add(batch), budget)
            if blocks is not None:
                yield blocks

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Pack the remaining rows."""
        blocks = self._pack_group(self._waiting.take(), budget)
        if blocks is not None:
            yield blocks

    def _pack_group(self, batches: list[pa.RecordBatch], budget: OperatorBudget) -> pa.RecordBatch | None:
        if not batches:
            return None
        started = time.perf_counter()
        rows = combine_batches(batches)
        batches.clear()  # so that they are freed before the rows are sorted
        blocks = self._pack(rows)
        budget.add_time_since(started)
        return blocks

    @abstractmethod
    def _pack(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """Sort rows by bucket and pack them; return the blocks if they are emitted now."""
