"""The worker functions that order the rows of a partition.

One function is for whole order keys. The other is for split order keys, whose results are merged afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.partition import order_by_partition
from sparkext.memory.probes import Tasks
from sparkext.plans.streams.order_table import BUCKETS, SPLIT, WHOLE
from sparkext.rows.blank import make_blank_row
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.types import conform_columns
from sparkext.shuffle.blocks import create_frame
from sparkext.shuffle.packed_rows import blocks_of, keep_order
from sparkext.streaming.ordered.description import ORDERED_FIELDS, OrderedRows, OrderedTask
from sparkext.streaming.ordered.partition import OrderedPartition, ReceivedBlocks, RowsInOrder
from sparkext.streaming.progress import PROGRESS
from sparkext.streaming.state.micro_batch import MicroBatch
from sparkext.streaming.state.run_lookup import RunLookup

_PROGRESS = pa.struct([(name, pa.int64()) for name in ORDERED_FIELDS])

METRICS = pa.schema([(PROGRESS, _PROGRESS)])
"""The columns of a block with the metrics of a batch, whose tag is negative."""


@dataclass(frozen=True)
class WholeKeysTask(OrderedTask):
    """Orders the rows of one partition's whole order keys."""

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Emit the results of one Spark partition."""
        converter = OutputConverter(self.ordered)
        with _open_partitions(self.ordered, tasks) as partition_of:
            received = ReceivedBlocks(self.ordered, WHOLE, batches)
            metrics = Counter[str](late_rows=received.late_rows)
            for rows in received.late():
                yield converter.late(rows)
            for number in received.partitions:
                partition = partition_of(WHOLE, number, received.rows)
                for rows in partition.results().pieces(len(self.ordered.result_schema)):
                    metrics["rows_out"] += rows.num_rows
                    yield converter.results(rows)
                metrics.update(partition.stored())
            yield converter.progress(metrics)


@dataclass(frozen=True)
class SplitKeysTask(OrderedTask):
    """Orders the rows of one partition's split order keys, and sends them to the partitions that merge them.

    The tag of a frame is the partition that sends it, and the note of a block is the position of its first row.
    `partition_keys[i]`: a key that Spark's shuffle maps to partition i.
    """

    partition_keys: tuple[int, ...]

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Send the results of one Spark partition."""
        with _open_partitions(self.ordered, tasks) as partition_of:
            received = ReceivedBlocks(self.ordered, SPLIT, batches)
            metrics = Counter[str]()
            for number in received.partitions:
                partition = partition_of(SPLIT, number, received.rows)
                results = partition.results()
                metrics["merged_rows"] += results.order.size
                yield from self._create_frames(results, partition, number)
                metrics.update(partition.stored())
            progress = pa.RecordBatch.from_arrays([_pack_progress(metrics)], schema=METRICS)
            for _, block in blocks_of(progress, keep_order(1)):
                yield create_frame(self.partition_keys[0], -1, block)

    def _create_frames(
        self, results: RowsInOrder, partition: OrderedPartition, writer: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield results in frames, each for one merging partition."""
        merging = np.zeros(BUCKETS, dtype=np.int32)
        merged = partition.plan.table.merged
        merging[[*merged]] = [*merged.values()]
        buckets = np.asarray(make_contiguous(results.rows.column(partition.bucket_column)), dtype=np.int32)[
            results.order
        ]
        homes = freeze(np.arange(self.ordered.partitions, dtype=np.int32))
        by_home = order_by_partition(freeze(merging[buckets]), homes, homes.size, None)
        width = len(self.ordered.merged_schema)
        for home, key in enumerate(self.partition_keys):
            outgoing = results.order[by_home.rows[by_home.starts[home] : by_home.starts[home + 1]]]
            first_row = 0
            for rows in RowsInOrder(results.rows, outgoing).pieces(width):
                for _, block in blocks_of(rows, keep_order(rows.num_rows), _count_from(first_row)):
                    yield create_frame(key, writer, block)
                first_row += rows.num_rows


class OutputConverter:
    """Converts results, late rows and metrics into the batches that tasks emit."""

    def __init__(self, ordered: OrderedRows) -> None:
        """Bind it to the columns."""
        self._schema, self._keeps_late = ordered.result_schema, ordered.keeps_late
        self._late = pa.struct([*ordered.input_schema])

    def results(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return results in the emitted schema."""
        columns = conform_columns(rows.columns[: len(self._schema)], self._schema).columns
        return self._create_batch(columns, None, None, rows.num_rows)

    def late(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return late rows in the emitted schema."""
        late = pa.StructArray.from_arrays(rows.columns, fields=[*self._late])
        nothing = [pa.nulls(rows.num_rows, kind) for kind in self._schema.types]
        return self._create_batch(nothing, late, None, rows.num_rows)

    def progress(self, metrics: Mapping[str, int]) -> pa.RecordBatch:
        """Return metrics in the emitted schema, as one row."""
        return self._create_batch(make_blank_row(self._schema).columns, None, _pack_progress(metrics), 1)

    def _create_batch(
        self, columns: list[pa.Array], late: pa.Array | None, progress: pa.Array | None, rows: int
    ) -> pa.RecordBatch:
        appended = [pa.nulls(rows, self._late) if late is None else late] if self._keeps_late else []
        appended.append(pa.nulls(rows, _PROGRESS) if progress is None else progress)
        names = [f"c{number}" for number in range(len(columns) + len(appended))]
        return pa.RecordBatch.from_arrays([*columns, *appended], names=names)


def _count_from(first: int) -> Callable[[int, int], int]:
    return lambda start, stop: first + start


def _pack_progress(metrics: Mapping[str, int]) -> pa.Array:
    return pa.array([{name: metrics.get(name, 0) for name in ORDERED_FIELDS}], _PROGRESS)


@contextmanager
def _open_partitions(ordered: OrderedRows, tasks: Tasks) -> Iterator[Callable[[int, int, pa.Table], OrderedPartition]]:
    """Yield a function that creates a partition from its mode, index and received rows; evict indexes on success."""
    batch = lookup = None
    if ordered.is_stream:
        batch = MicroBatch.of_this_task()
        lookup = RunLookup(ordered.state(batch), ordered.settings, tasks)
        lookup.state.claim(ordered.token)
    yield lambda mode, number, rows: OrderedPartition(ordered, mode, number, rows, batch, lookup, tasks)
    if lookup is not None:
        lookup.evict_indexes()
