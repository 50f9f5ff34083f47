"""A sink of outgoing rows, partitioned by their keys: writes the file that Spark's shuffle serves to other tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa

from sparkext.build_sides.rows_on_disk import share_of_headroom
from sparkext.engine.nodes import Sink
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.sinks.gathered_rows import GatheredRows
from sparkext.engine.worker_task import task_id
from sparkext.kernels.shuffle.join_size import WIDTH, add_to_sketch
from sparkext.memory.freed import FreeMemory
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.row_set import RowSet
from sparkext.shuffle.map_output import MapOutput
from sparkext.shuffle.outgoing_rows import bytes_to_gather, gathered_bytes
from sparkext.shuffle.partitioning import Partitioning
from sparkext.storage.local_folder import beside_task, local_folder
from sparkext.storage.paced_writes import PacedWriter

RESULT = pa.schema([(name, pa.binary()) for name in ("bytes", "checksum", "rows", "sizes", "sketch")])
"""A task's description of its file, in one row: int64 values per bucket, and a sketch of its keys.

`bytes`: bytes in the file. `sizes`: bytes of the same rows in memory. `checksum`: a single number, from which Spark
detects that a task that runs again sends other rows (`Partitioning.checksum`).
"""


@dataclass(frozen=True)
class OutgoingFile:
    """The partitioning of outgoing rows. Spark writes the target path next to the reports of `run`."""

    partitioning: Partitioning
    run: str

    def target(self) -> Path:
        """Return the path of this task's file."""
        note = beside_task(self.run, "target")
        assert note is not None, "called in a task"
        return Path(note.read_text(encoding="utf-8"))

    def open(self, rows: Sink, free: FreeMemory) -> Sink:
        """Return the sink that writes the file."""
        assert isinstance(rows, GatheredRows), "whole rows are sent"
        return OutgoingRows(rows, self, free)


class OutgoingRows:
    """Writes all rows to a file, bucket by bucket, and emits the description of the file.

    The file may exist already, empty: Spark grants other users access to it before it is written.
    """

    def __init__(self, rows: GatheredRows, leaving: OutgoingFile, free: FreeMemory) -> None:
        """Bind it to the outgoing columns."""
        self._gathered = rows
        self._leaving = leaving
        self._partitioning = leaving.partitioning
        self.row_bytes = rows.row_bytes
        self.copies = rows.copies
        self._turn = Lock()
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        buckets = self._partitioning.table.buckets
        self._free = free
        self._limit = 0
        self._output = MapOutput(buckets, share_of_headroom, local_folder())
        self._checksum = np.zeros(1, dtype=np.int64)
        self._rows = np.zeros(buckets, dtype=np.int64)
        self._sketch = np.zeros(buckets * WIDTH, dtype=np.int64)

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Gather rows; emit nothing."""
        for batch in self._gathered.process(rows, budget):
            with self._turn:
                size = gathered_bytes(batch)
                if self._waiting and self._bytes + size > self._limit:
                    self._pack_gathered(budget)
                if not self._waiting:
                    self._limit = bytes_to_gather(self._partitioning.table.buckets, self._free)
                self._waiting.append(batch)
                self._bytes += size
        return iter(())

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Write the file; emit its description (`RESULT`)."""
        try:
            self._pack_gathered(budget)
            started = time.perf_counter()
            with PacedWriter(FileIO(self._leaving.target(), "wb")) as stream:
                lengths = self._output.write(stream)
            budget.add_time_since(started)
        finally:
            self._output.close()
        numbers = (lengths, self._checksum, self._rows, self._output.sizes, self._sketch)
        told = [[values.tobytes()] for values in numbers]
        yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary()) for values in told], schema=RESULT)

    def _pack_gathered(self, budget: OperatorBudget) -> None:
        """Sort the gathered rows by bucket, and pack them into blocks."""
        if not self._waiting:
            return
        started = time.perf_counter()
        table = pa.Table.from_batches(self._waiting)
        self._waiting, self._bytes = [], 0
        rows = pa.RecordBatch.from_arrays(
            [make_contiguous(column) for column in table.columns], names=table.column_names
        )
        del table
        hashes, buckets = self._partitioning.buckets(rows)
        add_to_sketch(hashes, buckets, self._sketch)
        self._checksum += self._partitioning.checksum(rows, hashes)  # may overflow
        del hashes
        order = self._partitioning.order(buckets, task_id().partition)
        self._rows += np.diff(order.starts)
        self._output.add(rows, order)
        budget.add_time_since(started)
