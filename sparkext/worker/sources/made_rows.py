"""Rows that workers have made before, such as whole groups.

One task takes all of them. Made again, after a failure or for want of room, they may come in another order: two tasks
could not tell which of them the other has taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide
from sparkext.plans.spec import PROBE, PipelineSpec
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet


class MadeRows:
    """The rows that a build source has made, in row sets of at most `max_rows`, for the row that asks for them."""

    def __init__(self, made: BuildSide, batches: Iterable[pa.RecordBatch], max_rows: int) -> None:
        """Bind the rows to the task that takes them."""
        self._made = made
        self._batches = batches
        self._max_rows = max_rows

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield all rows."""
        metrics.source = list(self._made.info.made_by)
        rows = RowSet.of_morsel(self._made.columns, self._made.rows)
        for _ in self._batches:
            for start in range(0, rows.length, self._max_rows):
                metrics.morsels += 1
                yield rows.slice(start, min(self._max_rows, rows.length - start))

    def confirm(self) -> None:
        """Do nothing: what has been made does not change."""


def source_recipe(spec: PipelineSpec, hash_mask: int) -> IndexRecipe:
    """Return which columns of the source are kept; no row of it is looked up."""
    return IndexRecipe((), (), (), "auto", hash_mask, gathered=spec.gathered(PROBE))
