"""A sink of outgoing rows, partitioned by their keys: writes the file that Spark's shuffle serves to other tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
import pyarrow as pa

from sparkext.build_sides.rows_on_disk import share_of_headroom
from sparkext.engine.nodes import Sink
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.sinks.gathered_rows import GatheredRows
from sparkext.engine.sinks.packed_rows import PackedSink
from sparkext.engine.worker_task import task_id
from sparkext.kernels.shuffle.join_size import WIDTH, add_to_sketch
from sparkext.memory.freed import FreeMemory
from sparkext.shuffle.map_output import MapOutput
from sparkext.shuffle.outgoing_rows import bytes_to_gather
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


class OutgoingRows(PackedSink):
    """Writes all rows to a file, bucket by bucket, and emits the description of the file.

    The file may exist already, empty: Spark grants other users access to it before it is written.
    """

    def __init__(self, rows: GatheredRows, outgoing: OutgoingFile, free: FreeMemory) -> None:
        """Bind it to the outgoing columns."""
        buckets = outgoing.partitioning.table.buckets
        super().__init__(rows, outgoing.partitioning, lambda: bytes_to_gather(buckets, free))
        self._outgoing = outgoing
        self._output = MapOutput(buckets, share_of_headroom, local_folder())
        self._checksum = np.zeros(1, dtype=np.int64)
        self._rows = np.zeros(buckets, dtype=np.int64)
        self._sketch = np.zeros(buckets * WIDTH, dtype=np.int64)

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Write the file; emit its description (`RESULT`)."""
        try:
            yield from super().finish(budget)
            started = time.perf_counter()
            with PacedWriter(FileIO(self._outgoing.target(), "wb")) as stream:
                lengths = self._output.write(stream)
            budget.add_time_since(started)
        finally:
            self._output.close()
        numbers = (lengths, self._checksum, self._rows, self._output.sizes, self._sketch)
        columns = [[values.tobytes()] for values in numbers]
        yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary()) for values in columns], schema=RESULT)

    def _pack(self, rows: pa.RecordBatch) -> None:
        hashes, buckets = self._partitioning.buckets(rows)
        add_to_sketch(hashes, buckets, self._sketch)
        self._checksum += self._partitioning.checksum(rows, hashes)  # may overflow
        del hashes
        order = self._partitioning.order(buckets, task_id().partition)
        self._rows += np.diff(order.starts)
        self._output.add(rows, order)
