"""Rows that workers have made before, such as whole groups: each task takes slices of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide
from sparkext.plans.spec import PROBE, PipelineSpec
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet


class Slice(NamedTuple):
    """Part `number`, from 0 on, of rows that are taken in so many `parts` of about the same size."""

    number: int
    parts: int

    def of(self, rows: int) -> range:
        """Return which of so many rows it has."""
        return range(rows * self.number // self.parts, rows * (self.number + 1) // self.parts)


class MadeRows:
    """Slices of the rows that a build source has made, in row sets of at most `max_rows`."""

    def __init__(self, made: BuildSide, slices: Iterable[Slice], max_rows: int) -> None:
        """Bind the rows to one task."""
        self._made = made
        self._slices = slices
        self._max_rows = max_rows

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield the rows of each slice."""
        metrics.source = list(self._made.info.made_by)
        rows = RowSet.of_morsel(self._made.columns, self._made.rows)
        for part in self._slices:
            within = part.of(self._made.rows)
            for start in range(within.start, within.stop, self._max_rows):
                metrics.morsels += 1
                yield rows.slice(start, min(self._max_rows, within.stop - start))

    def confirm(self) -> None:
        """Do nothing: what has been made does not change."""


def source_recipe(spec: PipelineSpec, hash_mask: int) -> IndexRecipe:
    """Return which columns of the source are kept; no row of it is looked up."""
    return IndexRecipe((), (), (), "auto", hash_mask, gathered=spec.gathered(PROBE))
