"""The worker function that joins the rows of a partition while they are streamed to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Resources
from sparkext.engine.pipeline_plan import PipelinePlan
from sparkext.engine.pipeline_task import read_peak_rss
from sparkext.engine.sources.streamed_blocks import BucketClock, StreamedBlocks, read_received
from sparkext.engine.worker_task import ConfiguredTask, task_id
from sparkext.memory.probes import Tasks
from sparkext.reports.metrics import TaskMetrics, append_metrics
from sparkext.reports.reporters import TaskReporter
from sparkext.shuffle.packed_rows import RowUnpacker
from sparkext.shuffle.received_partition import FileRows, Partition, PartitionSchemas
from sparkext.shuffle.streamed import HOME, StreamedExchange, TaskFiles

_MOST_GROUPS = 17
"""Limit of cached groups: the home group and 16 moved buckets, as many as a partition has at home."""


@dataclass(frozen=True)
class StreamedPartitionTask(ConfiguredTask):
    """Joins blocks as they are received.

    They are joined with the build rows of all buckets whose home is this partition, or with the build rows of a single
    moved bucket. The locations of build rows are received before the first block that needs these rows.
    """

    plan: PipelinePlan
    schemas: PartitionSchemas
    streamed: StreamedExchange
    reporter: TaskReporter

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Join one partition."""
        settings, recipes = self.settings, self.plan.recipes(self.settings)
        replicated = self.plan.open(settings)
        resources = replace(Resources.of_this_task(tasks), cores=1)  # bucket costs are CPU times of one thread
        clock = BucketClock(TaskFiles(self.streamed.run))
        rows = RowUnpacker(self.schemas.probe)
        partition = task_id().partition
        groups = _Groups(lambda locations: self._build_sides(recipes, replicated, locations))
        metrics = TaskMetrics(task_id())
        try:
            runs = groupby(
                read_received(batches), lambda item: (item.is_build, self.streamed.group(item.bucket, partition))
            )
            for (is_build, group), items in runs:
                if is_build:
                    for build in items:
                        groups.add(group, build.content)
                    continue
                part = TaskMetrics(task_id())
                spec, schema = self.plan.spec, self.plan.output_schema
                pipeline = create_pipeline(spec, groups.of(group), schema, settings, resources, part)
                yield from pipeline.run(StreamedBlocks(items, rows, settings.morsel_max_rows, clock))
                metrics = append_metrics(metrics, part)
        finally:
            clock.write_report()
            metrics.peak_rss_bytes = read_peak_rss()
            self.reporter.report(metrics)

    def _build_sides(
        self, recipes: dict[int, IndexRecipe], replicated: dict[int, BuildSide], locations: pa.Buffer
    ) -> list[BuildSide]:
        """Return the build sides of all joins: the replicated build sides, and the build rows of a group."""
        batch = pa.record_batch([pa.array([locations.to_pybytes().decode()])], names=["places"])
        with closing(FileRows([batch], self.schemas)) as rows:
            sides = {**replicated, **Partition(self.schemas, rows).build_sides(recipes)}
        return [sides[number] for number in recipes]


class _Groups:
    """The build sides of each group of buckets: the home group, and the most recently used moved buckets.

    `build` creates them from the locations of their rows. It is called again if an evicted group is needed again.
    """

    def __init__(self, build: Callable[[pa.Buffer], list[BuildSide]]) -> None:
        """Begin without groups."""
        self._build = build
        self._locations: dict[int, pa.Buffer] = {}
        self._cached: dict[int, list[BuildSide]] = {}

    def add(self, group: int, locations: pa.Buffer) -> None:
        """Store the locations of a group's build rows."""
        self._locations[group] = locations

    def of(self, group: int) -> list[BuildSide]:
        """Return the build sides of a group."""
        sides = self._cached.pop(group, None) or self._build(self._locations[group])
        self._cached[group] = sides
        if len(self._cached) > _MOST_GROUPS:
            del self._cached[next(other for other in self._cached if other != HOME)]
        return sides
