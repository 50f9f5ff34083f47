"""The function that sends one side of a join to slots, as cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparkext._version import __version__
from sparkext.config import Settings
from sparkext.exchange.cells import COLUMNS, cell_row
from sparkext.exchange.leaving_rows import leaving_cells
from sparkext.exchange.partitioning import Partitioning
from sparkext.memory import freed
from sparkext.memory.probes import process_probe
from sparkext.rows.compression import decompressed
from sparkext.worker.task_start import check_version, entered, settle, task_id

_KINDS = (pa.int32(), pa.bool_())


@dataclass(frozen=True)
class PartitionTask:
    """Emits the rows of a side in cells. `slot_keys[i]` is the number that Spark brings to the partition of slot i.

    `tasks_sharing` and `made_by` are as in `PipelineTask`.
    """

    partitioning: Partitioning
    slot_keys: tuple[int, ...]
    is_build: bool
    settings: Settings
    tasks_sharing: int | None
    made_by: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send one partition."""
        check_version(self.made_by)
        settle()
        with entered(self.settings, self.tasks_sharing) as tasks:
            probe = process_probe()
            arriving = decompressed(batches)
            try:
                for cells in leaving_cells(
                    arriving, self.partitioning, task_id().partition, lambda: probe.headroom(tasks)
                ):
                    for slot, cell in cells:
                        yield self._row(slot, cell)
            finally:
                freed.release_unless_ample()

    def _row(self, slot: int, cell: pa.Buffer) -> pa.RecordBatch:
        return cell_row(COLUMNS, _KINDS, (self.slot_keys[slot], self.is_build), cell)
