"""A source whose first rows are read before a pipeline starts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from sparkext.engine.nodes import Source
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet


class BegunSource:
    """Wraps another source; `first` is its first row set, None if it has no rows.

    Input is counted in `metrics`, which must be the metrics of the pipeline.
    """

    def __init__(self, source: Source, metrics: TaskMetrics) -> None:
        """Read the first row set."""
        self._source = source
        self._remaining_sets = source.row_sets(metrics)
        self.first = next(self._remaining_sets, None)

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield all row sets, beginning with `first`, to which no reference is kept."""
        first, self.first = self.first, None
        return self._remaining_sets if first is None else chain([first], self._remaining_sets)

    def confirm(self) -> None:
        """Check that the data read so far is valid."""
        self._source.confirm()
