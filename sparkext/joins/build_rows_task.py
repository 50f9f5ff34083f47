"""The worker function that emits ids of build rows for right and full joins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparkext.build_sides.sources import BuildSource
from sparkext.engine.worker_task import ConfiguredTask
from sparkext.memory.probes import Tasks
from sparkext.rows.morsels import MAX_MORSEL_BYTES, split_by_bytes
from sparkext.rows.types import conform

_ROWS_PER_BATCH = 65_536


@dataclass(frozen=True)
class BuildRowsTask(ConfiguredTask):
    """Emits (row id, key columns) of a build side, one row range per partition, so that Spark can shuffle them.

    The input contains part indexes below `parts`; index i selects the i-th row range.
    """

    source: BuildSource
    key_columns: tuple[int, ...]
    parts: int
    output_schema: pa.Schema

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Emit the row range of each part index in the input."""
        rows, columns = self.source.columns()
        for batch in batches:
            for part in batch.column(0).to_pylist():
                start, stop = rows * part // self.parts, rows * (part + 1) // self.parts
                yield from self._emit_range(columns, start, stop)

    def _emit_range(self, columns: list[pa.Array], start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for at in range(start, stop, _ROWS_PER_BATCH):
            length = min(_ROWS_PER_BATCH, stop - at)
            ids = pa.array(range(at, at + length), pa.int64())
            keys = [columns[column].slice(at, length) for column in self.key_columns]
            names = self.output_schema.names
            for piece in split_by_bytes(pa.RecordBatch.from_arrays([ids, *keys], names=names), MAX_MORSEL_BYTES):
                arrays = [conform(array, kind) for array, kind in zip(piece, self.output_schema.types, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=names)
