"""The function that Spark's Python workers run: opens the build sides, runs the pipeline, reports."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from sparkext import __version__
from sparkext.build_sides.index_builder import IndexRecipe
from sparkext.build_sides.index_store import BuildSide
from sparkext.build_sides.scanned_files import make_room
from sparkext.build_sides.sources import BuildSource
from sparkext.config import Settings
from sparkext.errors import BuildSideTooLargeError, EnvironmentProblemError
from sparkext.kernels.threads import may_begin
from sparkext.memory import address_space, freed
from sparkext.memory.probes import Tasks, process_probe
from sparkext.memory.register import task_entered
from sparkext.parquet.metrics import ScanMetrics
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.scan import Split
from sparkext.plans.spec import PipelineSpec
from sparkext.reports.metrics import NO_TASK, TaskId
from sparkext.reports.reporters import TaskReporter
from sparkext.rows.compression import decompressed
from sparkext.rows.morsels import MAX_MORSEL_BYTES, within_bytes
from sparkext.rows.types import conform
from sparkext.worker.pipeline import Pipeline, index_recipe, probe_bounds

_ROWS_PER_BATCH = 65_536


@dataclass(frozen=True)
class PipelineTask:
    """A pipeline as `mapInArrow` wants it: called once per partition with an iterator of record batches.

    `scan`: how to read the probe side, where batches do not hold its rows but say which splits to read: in texts, or as
    numbers of `parts`.
    `tasks_sharing`: tasks that run on one executor at a time, where those that do cannot be counted; None for as many
    as this process may use cores.
    `made_by`: the version of sparkext on the driver.
    """

    spec_json: str
    sources: tuple[BuildSource, ...]
    output_schema: pa.Schema
    settings: Settings
    tasks_sharing: int | None
    reporter: TaskReporter
    scan: ParquetScan | None = None
    parts: tuple[tuple[Split, ...], ...] | None = None
    made_by: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join one partition."""
        check_version(self.made_by)
        address_space.check_room()
        _settle()
        otherwise = self.tasks_sharing or len(os.sched_getaffinity(0))
        with process_probe().limited(self.settings.memory_max_bytes), task_entered(otherwise) as tasks:
            yield from self._joined(decompressed(batches), tasks)

    def _joined(self, batches: Iterable[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        spec = PipelineSpec.from_json(self.spec_json)
        builds = self._open(spec)
        probe = process_probe()
        pipeline = Pipeline(
            spec,
            builds,
            self.output_schema,
            self.settings,
            lambda: probe.headroom(tasks),
            lambda limit: tasks(limit, probe.binding_group),
            freed.reclaim,
            may_begin(_cores()),
            _task_id(),
        )
        try:
            if self.scan is None:
                yield from pipeline.run(batches)
            else:
                bounds = probe_bounds(spec, builds)
                bound = replace(self.scan, bounds=bounds, metrics=ScanMetrics(), opened={}, unchecked=set())
                yield from pipeline.run_scanned(bound, self._splits(batches))
        finally:
            pipeline.metrics.peak_rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            self.reporter.report(pipeline.metrics)
            freed.release_unless_ample()

    def _open(self, spec: PipelineSpec) -> list[BuildSide]:
        """Open all build sides. Tasks begin with different ones: workers that start together share the building."""
        count = len(spec.joins)
        recipes = [index_recipe(spec, number, self.settings.debug_hash_mask) for number in range(count)]
        builds: dict[int, BuildSide] = {}
        for turn in range(count):
            number = (turn + _task_id().partition) % count
            builds[number] = self.sources[number].open(recipes[number])
        if not all(build.reused for build in builds.values()):
            make_room(self.sources, recipes)
        return [builds[number] for number in range(count)]

    def _splits(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Split]:
        for batch in batches:
            for told in batch.column(0).to_pylist():
                yield from map(Split.from_data, json.loads(told)) if self.parts is None else self.parts[told]


@dataclass(frozen=True)
class BuildSideTask:
    """Has a build side read and indexed before the join that asks for it begins, and says what keeps it from that.

    For each batch that it is given it emits one of one text: empty, or why the build side of join number `number`
    does not fit. `tasks_sharing` and `made_by` are as in `PipelineTask`.
    """

    spec_json: str
    number: int
    source: BuildSource
    settings: Settings
    tasks_sharing: int | None
    made_by: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Build the index, on this node."""
        check_version(self.made_by)
        _settle()
        recipe = index_recipe(PipelineSpec.from_json(self.spec_json), self.number, self.settings.debug_hash_mask)
        otherwise = self.tasks_sharing or len(os.sched_getaffinity(0))
        with process_probe().limited(self.settings.memory_max_bytes), task_entered(otherwise):
            for _ in batches:
                yield pa.RecordBatch.from_arrays([pa.array([self._problem(recipe)], pa.string())], names=["c0"])

    def _problem(self, recipe: IndexRecipe) -> str:
        try:
            self.source.open(recipe)
        except BuildSideTooLargeError as error:
            return str(error)
        finally:
            freed.release_unless_ample()
        return ""


def check_version(made_by: str) -> None:
    """Refuse what another version of sparkext has made, on the driver or in its jar: it may mean something else.

    Raises
    ------
    EnvironmentProblemError
        Names both versions.
    """
    if made_by != __version__:
        raise EnvironmentProblemError(
            f"the driver, or the jar that it has loaded, is of sparkext {made_by}, this worker ({sys.executable}) has"
            f" {__version__}: install one version on the driver and on all nodes, and load the jar that"
            " `python -m sparkext jar` prints there"
        )


@dataclass(frozen=True)
class BuildRowsTask:
    """Emits (row id, key columns) of a build side, one row range per partition, so that Spark can shuffle them.

    Partition i of the input holds the one number i; it stands for the i-th of `parts` ranges. `made_by` is as in
    `PipelineTask`.
    """

    source: BuildSource
    key_columns: tuple[int, ...]
    parts: int
    output_schema: pa.Schema
    made_by: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Emit the range of each number."""
        check_version(self.made_by)
        rows, columns = self.source.columns()
        for batch in batches:
            for part in batch.column(0).to_pylist():
                start, stop = rows * part // self.parts, rows * (part + 1) // self.parts
                yield from self._range(columns, start, stop)

    def _range(self, columns: list[pa.Array], start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for at in range(start, stop, _ROWS_PER_BATCH):
            length = min(_ROWS_PER_BATCH, stop - at)
            ids = pa.array(range(at, at + length), pa.int64())
            keys = [columns[column].slice(at, length) for column in self.key_columns]
            names = self.output_schema.names
            for piece in within_bytes(pa.RecordBatch.from_arrays([ids, *keys], names=names), MAX_MORSEL_BYTES):
                arrays = [conform(array, kind) for array, kind in zip(piece, self.output_schema.types, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=names)


@lru_cache(maxsize=1)
def _settle() -> None:
    """Take what this process has loaded for what it is, no garbage: Spark has it all looked at after every task.

    Without the extension's daemon, which has done so before it forked, that takes 60 ms with numba loaded. And reserve
    no address space from then on, where it is short.
    """
    gc.freeze()
    address_space.spare()


def _cores() -> int:
    """Return how many cores this task owns."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else max(1, context.cpus())


def _task_id() -> TaskId:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return NO_TASK
    return TaskId(context.stageId(), context.partitionId(), context.attemptNumber())
