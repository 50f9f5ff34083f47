"""Rows of files, which the task reads itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sparkext.build_sides.index_store import BuildSide
from sparkext.kernels.gather import Column
from sparkext.parquet.scan import ParquetScan
from sparkext.parquet.statistics import ProbeBounds
from sparkext.plans.scan import Split
from sparkext.plans.spec import PROBE, ColumnRef, PipelineSpec
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet
from sparkext.worker.probe_keys import ProbeKeys


class ScannedSplits:
    """Splits of Parquet files, but for what the build sides of a pipeline rule out beforehand.

    These are row groups by their statistics, and whole partitions by their values.
    """

    def __init__(
        self, scan: ParquetScan, splits: Iterable[Split], spec: PipelineSpec, builds: Sequence[BuildSide]
    ) -> None:
        """Bind a scan to one task."""
        self._scan = scan.begun(probe_bounds(spec, builds))
        self._splits = splits
        self._partitions = {number for number, column in enumerate(scan.spec.columns) if column.partition is not None}
        known = {ColumnRef(PROBE, column) for column in self._partitions}
        self._deciding = [
            (ProbeKeys(join.keys, build), build)
            for join, build in zip(spec.joins, builds, strict=True)
            if join.drops_unmatched and join.keys and not join.ranges and join.as_of is None
            if known.issuperset(key.probe for key in join.keys)
        ]

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield the rows that the scan's filter keeps."""
        metrics.scan = self._scan.metrics
        for rows in self._scan.row_sets(filter(self._may_match, self._splits)):
            metrics.morsels += 1
            yield rows

    def confirm(self) -> None:
        """Make sure that no file was replaced while it was read: a LIMIT may ask for no more.

        Raises
        ------
        FileReadError
            One was.
        """
        self._scan.check_unchanged()

    def _may_match(self, split: Split) -> bool:
        """Return whether the partition that a split belongs to has a match wherever rows without one are dropped."""
        if not self._deciding:
            return True
        row = {number: Column.of(self._scan.constant(split.values, number, 1)) for number in self._partitions}
        rows = RowSet.of_morsel(row, 1)
        return all(build.lookup(keys.of(rows)).matched for keys, build in self._deciding)


def probe_bounds(spec: PipelineSpec, builds: Sequence[BuildSide]) -> list[ProbeBounds]:
    """Return what the build sides ask of columns of the probe side: rows outside lack a match that they need.

    A join that may fail has to see all rows that come to it.
    """
    last = next((number for number, join in enumerate(spec.joins, 1) if join.may_fail), len(spec.joins))
    return [
        ProbeBounds(key.probe.column, (bounds[0], bounds[1]) if bounds else None)
        for join, build in [*zip(spec.joins, builds, strict=True)][:last]
        if join.drops_unmatched
        for key, bounds in zip(join.keys, build.info.key_bounds, strict=True)
        if key.probe.source == PROBE and bounds is not None
    ]
