"""Rows of files that the task reads itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sparkext.build_sides.index_store import BuildSide
from sparkext.engine.probe_keys import ProbeKeys
from sparkext.kernels.columns.gather import Column
from sparkext.parquet.scan import ParquetScan
from sparkext.parquet.statistics import ProbeBounds
from sparkext.plans.pipeline.scan import Split
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, PipelineSpec
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet


class ScannedSplits:
    """Splits of Parquet files, without the parts that cannot match the build sides of the pipeline.

    Row groups are skipped by their statistics, and whole Spark partitions by their partition values.
    """

    def __init__(
        self, scan: ParquetScan, splits: Iterable[Split], spec: PipelineSpec, builds: Sequence[BuildSide]
    ) -> None:
        """Bind a scan to one task."""
        self._scan = scan.begun(find_probe_bounds(spec, builds))
        self._splits = splits
        self._partitions = {number for number, column in enumerate(scan.spec.columns) if column.partition is not None}
        partition_columns = {ColumnRef(PROBE, column) for column in self._partitions}
        self._partition_joins = [
            (ProbeKeys(join.keys, build), build)
            for join, build in _find_reducing_joins(spec, builds)
            if join.keys and not join.ranges and join.as_of is None
            if partition_columns.issuperset(key.probe for key in join.keys)
        ]

    def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
        """Yield the rows that fulfil the filter of the scan."""
        metrics.scan = self._scan.metrics
        for rows in self._scan.row_sets(filter(self._may_match, self._splits)):
            metrics.morsels += 1
            yield rows

    def confirm(self) -> None:
        """Check that no file was replaced while it was read. A LIMIT may end the reading early.

        Raises
        ------
        FileReadError
            A file was replaced.
        """
        self._scan.check_unchanged()

    def _may_match(self, split: Split) -> bool:
        """Return whether the partition values of a split have a match in every join that drops unmatched rows."""
        if not self._partition_joins:
            return True
        row = {number: Column.of(self._scan.constant(split.values, number, 1)) for number in self._partitions}
        rows = RowSet.of_morsel(row, 1)
        return all(build.lookup(keys.of(rows)).matched for keys, build in self._partition_joins)


def find_probe_bounds(spec: PipelineSpec, builds: Sequence[BuildSide]) -> list[ProbeBounds]:
    """Return the bounds of probe columns given by the build sides: rows outside of them lack a required match."""
    return [
        ProbeBounds(key.probe.column, (bounds[0], bounds[1]) if bounds else None)
        for join, build in _find_reducing_joins(spec, builds)
        for key, bounds in zip(join.keys, build.info.key_bounds, strict=True)
        if key.probe.source == PROBE and bounds is not None
    ]


def _find_reducing_joins(spec: PipelineSpec, builds: Sequence[BuildSide]) -> list[tuple[JoinSpec, BuildSide]]:
    """Return the joins that may exclude rows of the probe side before they are read, with their build sides.

    Joins after the first join that may fail are ignored: the join that may fail has to receive all of its rows.
    """
    last = next((number for number, join in enumerate(spec.joins, 1) if join.may_fail), len(spec.joins))
    pairs = [*zip(spec.joins, builds, strict=True)][:last]
    return [(join, build) for join, build in pairs if join.drops_unmatched]
