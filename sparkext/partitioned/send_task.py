"""The worker function that sends one side of a join to the partitions of an exchange, as blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparkext.engine.worker_task import ConfiguredTask, task_id
from sparkext.memory.probes import Tasks, process_probe
from sparkext.shuffle.blocks import COLUMNS, block_row
from sparkext.shuffle.outgoing_rows import create_outgoing_blocks
from sparkext.shuffle.partitioning import Partitioning

_KINDS = (pa.int32(), pa.bool_())


@dataclass(frozen=True)
class PartitionTask(ConfiguredTask):
    """Emits the rows of a side in blocks.

    `partition_keys[i]`: a key that Spark's shuffle maps to partition i.
    """

    partitioning: Partitioning
    partition_keys: tuple[int, ...]
    is_build: bool

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Send the rows of one Spark partition."""
        probe = process_probe()
        for blocks in create_outgoing_blocks(
            batches, self.partitioning, task_id().partition, lambda: probe.headroom(tasks)
        ):
            for partition, block in blocks:
                yield self._row(partition, block)

    def _row(self, partition: int, block: pa.Buffer) -> pa.RecordBatch:
        return block_row(COLUMNS, _KINDS, (self.partition_keys[partition], self.is_build), block)
