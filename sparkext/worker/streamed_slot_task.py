"""The function that joins a slot's rows while they stream to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa

from sparkext.build_sides.index_recipe import IndexRecipe, index_recipes
from sparkext.build_sides.index_store import BuildSide
from sparkext.exchange.packed_rows import RowUnpacker
from sparkext.exchange.slot import FileRows, Slot, SlotSchemas
from sparkext.exchange.streamed import HOME, Streamed, TaskFiles
from sparkext.memory.probes import Tasks
from sparkext.plans.spec import PipelineSpec
from sparkext.reports.metrics import TaskMetrics, followed_by
from sparkext.worker.join_pipeline import join_pipeline
from sparkext.worker.pipeline import Resources
from sparkext.worker.pipeline_task import PipelineTask, peak_rss_bytes
from sparkext.worker.sources.streamed_cells import LineClock, StreamedCells, arriving
from sparkext.worker.worker_task import MemoryShare, WorkerTask, task_id

_MOST_GROUPS = 17
"""As many lines from elsewhere as a slot has at home: it may have none of these by then."""


@dataclass(frozen=True)
class StreamedSlotTask(WorkerTask):
    """Joins cells as they come, with the build rows of all lines at home in this slot, or of their own line.

    Where build rows lie is told before the first cell that needs them: of a line from elsewhere, when it comes.
    """

    task: PipelineTask
    schemas: SlotSchemas
    streamed: Streamed

    @property
    def share(self) -> MemoryShare:
        """The share of the task that joins."""
        return MemoryShare(self.task.settings, self.task.tasks_sharing)

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Join one slot."""
        spec, settings = PipelineSpec.from_json(self.task.spec_json), self.task.settings
        whole = self.task.open(spec)
        resources = replace(Resources.of_this_task(tasks), cores=1)  # as one thread's work is measured
        clock = LineClock(TaskFiles(self.streamed.run))
        rows = RowUnpacker(self.schemas.probe)
        slot = task_id().partition
        recipes = dict(enumerate(index_recipes(spec, settings.debug_hash_mask)))
        groups = _Groups(lambda places: self._build_sides(recipes, whole, places))
        metrics = TaskMetrics(task_id())
        try:
            coming = groupby(arriving(batches), lambda come: (come.is_build, self.streamed.group(come.line, slot)))
            for (is_build, group), come in coming:
                if is_build:
                    for build in come:
                        groups.add(group, build.content)
                    continue
                part = TaskMetrics(task_id())
                pipeline = join_pipeline(spec, groups.of(group), self.task.output_schema, settings, resources, part)
                yield from pipeline.run(StreamedCells(come, rows, settings.morsel_max_rows, clock))
                metrics = followed_by(metrics, part)
        finally:
            clock.tell()
            metrics.peak_rss_bytes = peak_rss_bytes()
            self.task.reporter.report(metrics)

    def _build_sides(
        self, recipes: dict[int, IndexRecipe], whole: dict[int, BuildSide], places: pa.Buffer
    ) -> list[BuildSide]:
        """Return the build sides of all joins: those that lie whole on this node, and those of a group of lines."""
        told = pa.record_batch([pa.array([places.to_pybytes().decode()])], names=["places"])
        with closing(FileRows([told], self.schemas)) as rows:
            sides = {**whole, **Slot(self.schemas, rows).build_sides(recipes)}
        return [sides[number] for number in recipes]


class _Groups:
    """The build sides of each group of lines: those at home, and of others those that came last.

    `build` makes them of where their rows lie; it may be asked again for a line that comes back.
    """

    def __init__(self, build: Callable[[pa.Buffer], list[BuildSide]]) -> None:
        """Begin with none."""
        self._build = build
        self._places: dict[int, pa.Buffer] = {}
        self._kept: dict[int, list[BuildSide]] = {}

    def add(self, group: int, places: pa.Buffer) -> None:
        """Take in where the build rows of a group lie."""
        self._places[group] = places

    def of(self, group: int) -> list[BuildSide]:
        """Return the build sides of a group."""
        found = self._kept.pop(group, None) or self._build(self._places[group])
        self._kept[group] = found
        if len(self._kept) > _MOST_GROUPS:
            del self._kept[next(other for other in self._kept if other != HOME)]
        return found
