"""The worker function of a join pipeline: opens the build sides, runs the pipeline and reports metrics."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from sparkext.build_sides.cached_rows import evict_other_entries
from sparkext.build_sides.index_recipe import derive_index_recipes
from sparkext.build_sides.index_store import BuildSide
from sparkext.build_sides.sources import BuildSource
from sparkext.engine.derived_rows import SOURCE
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.measured_order import order_joins
from sparkext.engine.nodes import Source
from sparkext.engine.pipeline import Resources
from sparkext.engine.requested_sides import plan_requested_sides
from sparkext.engine.sinks.outgoing_rows import OutgoingFile
from sparkext.engine.sinks.routed_blocks import OutgoingStream
from sparkext.engine.sources.derived_rows import DerivedProbeRows
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.engine.sources.scanned_splits import ScannedSplits
from sparkext.engine.worker_task import ConfiguredTask, task_id
from sparkext.memory.probes import Tasks
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.pipeline.scan import Split
from sparkext.plans.pipeline.spec import PROBE, PipelineSpec
from sparkext.reports.metrics import TaskMetrics
from sparkext.reports.reporters import TaskReporter
from sparkext.shuffle.received_partition import BlockRows, FileRows, Partition, PartitionRows, PartitionSchemas


@dataclass(frozen=True)
class PipelineTask(ConfiguredTask):
    """A pipeline of joins over one partition of the probe side.

    `scan`: how to read the probe side. If it is given, the batches contain the splits to read instead of probe rows: as
    JSON texts, or as indexes into `parts`. `made`: the source of a derived probe side; a single task with a single
    input row reads all of it. `partition`: the schemas of an exchange partition. If it is given, the batches contain
    blocks with the rows of both sides or, with `partition_in_files`, the locations of these blocks. Build sides from
    the exchange have no source. `leaving`: how to partition outgoing rows, if the result goes to other tasks.
    """

    spec: PipelineSpec
    sources: tuple[BuildSource | None, ...]
    output_schema: pa.Schema
    reporter: TaskReporter
    scan: ParquetScan | None = None
    parts: tuple[tuple[Split, ...], ...] | None = None
    made: BuildSource | None = None
    partition: PartitionSchemas | None = None
    partition_in_files: bool = False
    leaving: OutgoingFile | OutgoingStream | None = None

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Join one partition."""
        if self.partition is None:
            yield from self._joined(batches, tasks, None)
            return
        with closing(self._partition_rows(self.partition, batches)) as rows:
            yield from self._joined((), tasks, Partition(self.partition, rows))

    def _partition_rows(self, schemas: PartitionSchemas, batches: Iterable[pa.RecordBatch]) -> PartitionRows:
        return FileRows(batches, schemas) if self.partition_in_files else BlockRows(batches)

    def _joined(
        self, batches: Iterable[pa.RecordBatch], tasks: Tasks, partition: Partition | None
    ) -> Iterator[pa.RecordBatch]:
        spec = self.spec
        sides = self.open()
        if partition is not None:
            sides.update(
                partition.build_sides(dict(enumerate(derive_index_recipes(spec, self.settings.debug_hash_mask))))
            )
            keys = {column for source, column in spec.joins[0].references(1) if source == PROBE}
            batches = partition.probe_batches(keys)
        builds = [sides[number] for number in range(len(spec.joins))]
        resources = Resources.of_this_task(tasks)
        metrics = TaskMetrics(task_id())
        try:
            own = self._source(batches, spec, builds, sides.get(SOURCE))
            source, order = order_joins(spec, builds, own, self.settings, metrics)
            pipeline = create_pipeline(
                spec, builds, self.output_schema, self.settings, resources, metrics, self.leaving, order
            )
            yield from pipeline.run(source)
        finally:
            metrics.peak_rss_bytes = read_peak_rss()
            self.reporter.report(metrics)

    def _source(
        self, batches: Iterable[pa.RecordBatch], spec: PipelineSpec, builds: list[BuildSide], made: BuildSide | None
    ) -> Source:
        """Return the source of the probe side's rows."""
        if made is not None:
            return DerivedProbeRows(made, batches, self.settings.morsel_max_rows)
        if self.scan is None:
            return RowBatches(batches, spec, self.settings.morsel_max_rows)
        return ScannedSplits(self.scan, self._splits(batches), spec, builds)

    def open(self) -> dict[int, BuildSide]:
        """Open all build sides that have a source, by join number, and the derived probe side, if there is one.

        Tasks start with different build sides, so workers that start together build different indexes.
        """
        asked = [*plan_requested_sides(self.spec, self.sources, self.made, self.settings).values()]
        first = task_id().partition % max(1, len(asked))
        sides = {side.number: side.open() for side in asked[first:] + asked[:first]}
        if not all(side.reused for side in sides.values()):
            sources, recipes, _ = zip(*asked, strict=True)
            evict_other_entries(sources, recipes, self.settings.index_cache_max_bytes)
        return sides

    def _splits(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Split]:
        for batch in batches:
            for told in batch.column(0).to_pylist():
                yield from map(Split.from_data, json.loads(told)) if self.parts is None else self.parts[told]


def read_peak_rss() -> int:
    """Return the peak resident memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
