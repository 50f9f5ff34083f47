"""Rows that workers have derived, such as complete groups.

A single task reads all of them. If the rows are derived again, after a failure or an eviction, their order may differ,
so two tasks could not divide them reliably.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide
from sparkext.plans.pipeline.spec import PROBE, PipelineSpec
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet


class DerivedProbeRows:
    """All rows of a derived source, in row sets of at most `max_rows`, once for each input batch."""

    def __init__(self, build: BuildSide, batches: Iterable[pa.RecordBatch], max_rows: int) -> None:
        """Bind the rows to the task that reads them; `batches` is the input of the task."""
        self._build = build
        self._batches = batches
        self._max_rows = max_rows

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield all rows for each input batch."""
        metrics.source = list(self._build.info.made_by)
        rows = RowSet.of_morsel(self._build.columns, self._build.rows)
        for _ in self._batches:
            for start in range(0, rows.length, self._max_rows):
                metrics.morsels += 1
                yield rows.slice(start, min(self._max_rows, rows.length - start))

    def confirm(self) -> None:
        """Do nothing: derived rows do not change."""


def derive_source_recipe(spec: PipelineSpec, hash_mask: int) -> IndexRecipe:
    """Return the recipe of the source's gathered columns, without keys, as its rows are never looked up."""
    return IndexRecipe((), (), (), "auto", hash_mask, gathered=spec.gathered(PROBE))
