"""Rows that the JVM sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from sparkext.errors import SchemaMismatchError
from sparkext.kernels.columns.gather import Column
from sparkext.plans.pipeline.spec import PipelineSpec
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.morsels import form_morsels
from sparkext.rows.row_set import RowSet


class RowBatches:
    """Record batches of the probe side, coalesced and split into morsels of at most `max_rows` rows.

    Raises
    ------
    SchemaMismatchError
        A batch does not have the number of columns that the pipeline was planned for.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], spec: PipelineSpec, max_rows: int) -> None:
        """Bind record batches of any size."""
        self._batches = batches
        self._width = spec.owner_columns + spec.probe_columns
        self._max_rows = max_rows

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield the rows of each morsel."""
        for morsel in form_morsels(self._count_batches(metrics), self._max_rows):
            metrics.morsels += 1
            yield RowSet.of_morsel([Column.of(column) for column in morsel.columns], morsel.num_rows)

    def confirm(self) -> None:
        """Do nothing: received rows do not change."""

    def _count_batches(self, metrics: TaskMetrics) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if batch.num_columns != self._width:
                raise SchemaMismatchError(
                    f"the probe side has {batch.num_columns} columns, but the pipeline was planned for {self._width}"
                )
            metrics.batches_in += 1
            yield batch
