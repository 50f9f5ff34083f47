"""The worker function that sends one side of a join to the partitions of an exchange, as blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparkext.engine.worker_task import ConfiguredTask, task_id
from sparkext.memory.probes import Tasks, process_probe
from sparkext.rows.types import conform_columns
from sparkext.shuffle.blocks import create_frame
from sparkext.shuffle.outgoing_rows import create_outgoing_blocks
from sparkext.shuffle.partitioning import Partitioning


@dataclass(frozen=True)
class PartitionTask(ConfiguredTask):
    """Emits the rows of a side in frames, whose tags are 1 for the build side and 0 for the probe side.

    `partition_keys[i]`: a key that Spark's shuffle maps to partition i. `schema`: the schema of the side.
    """

    partitioning: Partitioning
    partition_keys: tuple[int, ...]
    is_build: bool
    schema: pa.Schema

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Send the rows of one Spark partition."""
        probe = process_probe()
        rows = (conform_columns(batch.columns, self.schema) for batch in batches)
        for partition, block in create_outgoing_blocks(
            rows, self.partitioning, task_id().partition, lambda: probe.headroom(tasks)
        ):
            yield create_frame(self.partition_keys[partition], int(self.is_build), block)
