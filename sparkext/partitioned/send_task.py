"""The worker function that sends one side of a join to the partitions of an exchange, as blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparkext.engine.worker_task import ConfiguredTask, task_id
from sparkext.memory.probes import Tasks, process_probe
from sparkext.shuffle.blocks import COLUMNS, cell_row
from sparkext.shuffle.outgoing_rows import leaving_cells
from sparkext.shuffle.partitioning import Partitioning

_KINDS = (pa.int32(), pa.bool_())


@dataclass(frozen=True)
class PartitionTask(ConfiguredTask):
    """Emits the rows of a side in blocks (`cell` in the code).

    `slot_keys[i]`: a key that Spark's shuffle maps to partition i.
    """

    partitioning: Partitioning
    slot_keys: tuple[int, ...]
    is_build: bool

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Send the rows of one Spark partition."""
        probe = process_probe()
        for cells in leaving_cells(batches, self.partitioning, task_id().partition, lambda: probe.headroom(tasks)):
            for slot, cell in cells:
                yield self._row(slot, cell)

    def _row(self, slot: int, cell: pa.Buffer) -> pa.RecordBatch:
        return cell_row(COLUMNS, _KINDS, (self.slot_keys[slot], self.is_build), cell)
