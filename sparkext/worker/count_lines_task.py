"""The function that counts the rows of each order line, of a DataFrame that is no stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkext._version import __version__
from sparkext.exchange.partitioning import Partitioning
from sparkext.plans.order_table import LINES
from sparkext.rows.compression import decompressed
from sparkext.rows.types import conformed
from sparkext.worker.task_start import check_version, settle

COUNTS_DDL = "line int, rows bigint"


@dataclass(frozen=True)
class CountLinesTask:
    """Counts rows that have the columns of a key and no others. `made_by` is as in `PipelineTask`."""

    keys: Partitioning
    columns: pa.Schema
    made_by: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count one partition."""
        check_version(self.made_by)
        settle()
        counts = np.zeros(LINES, dtype=np.int64)
        for rows in decompressed(batches):
            counts += np.bincount(self.keys.lines(conformed(rows.columns, self.columns))[1], minlength=LINES)
        lines = np.flatnonzero(counts)
        columns = [pa.array(lines, pa.int32()), pa.array(counts[lines])]
        yield pa.RecordBatch.from_arrays(columns, names=["line", "rows"])
