"""The sources of tasks: the contents of the batches that Spark sends to a task, and how they are opened."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from sparkext.build_sides.index_store import BuildSide
from sparkext.build_sides.sources import BuildSource
from sparkext.config import Settings
from sparkext.engine.nodes import Source
from sparkext.engine.pipeline_plan import PipelinePlan
from sparkext.engine.sources.derived_rows import DerivedProbeRows
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.engine.sources.scanned_splits import ScannedSplits
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.pipeline.scan import Split
from sparkext.plans.pipeline.spec import PROBE
from sparkext.shuffle.received_partition import BlockRows, FileRows, Partition, PartitionRows, PartitionSchemas

Opened = AbstractContextManager[tuple[Sequence[BuildSide], Source]]
"""The build sides of all joins, and the source of the probe rows. They may be used until the context ends."""


class TaskSource(Protocol):
    """The contents of the batches that Spark sends to a task."""

    def open(self, batches: Iterable[pa.RecordBatch], plan: PipelinePlan, settings: Settings) -> Opened:
        """Open the build sides of a plan, and the rows of its probe side."""
        ...


@dataclass(frozen=True)
class ProbeBatches:
    """The batches contain probe rows."""

    def open(self, batches: Iterable[pa.RecordBatch], plan: PipelinePlan, settings: Settings) -> Opened:
        """Open the build sides."""
        builds = [*plan.open(settings).values()]
        return nullcontext((builds, RowBatches(batches, plan.spec, settings.morsel_max_rows)))


@dataclass(frozen=True)
class ListedSplits:
    """The batches contain lists of splits to read, as JSON texts."""

    scan: ParquetScan

    def open(self, batches: Iterable[pa.RecordBatch], plan: PipelinePlan, settings: Settings) -> Opened:
        """Open the build sides, and bind the scan to them."""
        splits = (Split.from_data(data) for text in _values(batches) for data in json.loads(text))
        return _open_scan(self.scan, splits, plan, settings)


@dataclass(frozen=True)
class NumberedParts:
    """The batches contain indexes into `parts`, the splits to read."""

    scan: ParquetScan
    parts: tuple[tuple[Split, ...], ...]

    def open(self, batches: Iterable[pa.RecordBatch], plan: PipelinePlan, settings: Settings) -> Opened:
        """Open the build sides, and bind the scan to them."""
        splits = (split for number in _values(batches) for split in self.parts[number])
        return _open_scan(self.scan, splits, plan, settings)


@dataclass(frozen=True)
class DerivedProbe:
    """The probe rows are derived by workers. A single task with a single input row reads all of them."""

    made: BuildSource

    def open(self, batches: Iterable[pa.RecordBatch], plan: PipelinePlan, settings: Settings) -> Opened:
        """Open the build sides and the derived rows, whose number (`SOURCE`) precedes all join numbers."""
        probe_side, *builds = plan.open(settings, self.made).values()
        return nullcontext((builds, DerivedProbeRows(probe_side, batches, settings.morsel_max_rows)))


@dataclass(frozen=True)
class PartitionBlocks:
    """The batches contain blocks with the rows of both sides of a partition."""

    schemas: PartitionSchemas

    def open(self, batches: Iterable[pa.RecordBatch], plan: PipelinePlan, settings: Settings) -> Opened:
        """Receive all blocks, and open the build sides."""
        return _open_partition(self.schemas, BlockRows(batches, self.schemas), plan, settings)


@dataclass(frozen=True)
class PartitionFiles:
    """The batches contain the locations of the blocks of a partition in files of map tasks."""

    schemas: PartitionSchemas

    def open(self, batches: Iterable[pa.RecordBatch], plan: PipelinePlan, settings: Settings) -> Opened:
        """Open the build sides."""
        return _open_partition(self.schemas, FileRows(batches, self.schemas), plan, settings)


def _values(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    return (value for batch in batches for value in batch.column(0).to_pylist())


def _open_scan(scan: ParquetScan, splits: Iterable[Split], plan: PipelinePlan, settings: Settings) -> Opened:
    builds = [*plan.open(settings).values()]
    return nullcontext((builds, ScannedSplits(scan, splits, plan.spec, builds)))


@contextmanager
def _open_partition(
    schemas: PartitionSchemas, received: PartitionRows, plan: PipelinePlan, settings: Settings
) -> Iterator[tuple[Sequence[BuildSide], Source]]:
    """Open the build sides that have a source, and index the received build rows. At the end, close the rows."""
    with closing(received) as rows:
        partition = Partition(schemas, rows)
        sides = {**plan.open(settings), **partition.build_sides(plan.recipes(settings))}
        builds = [sides[number] for number in sorted(sides)]
        keys = {column for source, column in plan.spec.joins[0].references(1) if source == PROBE}
        yield builds, RowBatches(partition.probe_batches(keys), plan.spec, settings.morsel_max_rows)
