"""A source of which the first rows have been looked at before a pipeline takes them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet
from sparkext.worker.nodes import Source


class Begun:
    """Gives what another source gives; `first` are its first rows, None if it has none.

    Whoever begins it counts in the `metrics` of the pipeline.
    """

    def __init__(self, source: Source, metrics: TaskMetrics) -> None:
        """Take the first rows."""
        self._source = source
        self._others = source.row_sets(metrics)
        self.first = next(self._others, None)

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield all rows, the first ones again; let go of these as soon as they are taken."""
        first, self.first = self.first, None
        return self._others if first is None else chain([first], self._others)

    def confirm(self) -> None:
        """Make sure that what has been read so far is sound."""
        self._source.confirm()
