"""The worker function that counts the rows of each order bucket, for a DataFrame that is not a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkext.engine.worker_task import ConfiguredTask
from sparkext.memory.probes import Tasks
from sparkext.plans.streams.order_table import BUCKETS
from sparkext.rows.types import conform_columns
from sparkext.shuffle.partitioning import Partitioning

COUNTS_DDL = "bucket int, rows bigint"


@dataclass(frozen=True)
class CountBucketsTask(ConfiguredTask):
    """Counts rows by bucket. The rows have the key columns only."""

    keys: Partitioning
    columns: pa.Schema

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Emit the counts of one partition: one row for each bucket that has rows."""
        counts = np.zeros(BUCKETS, dtype=np.int64)
        for rows in batches:
            counts += np.bincount(self.keys.buckets(conform_columns(rows.columns, self.columns))[1], minlength=BUCKETS)
        buckets = np.flatnonzero(counts)
        columns = [pa.array(buckets, pa.int32()), pa.array(counts[buckets])]
        yield pa.RecordBatch.from_arrays(columns, names=["bucket", "rows"])
