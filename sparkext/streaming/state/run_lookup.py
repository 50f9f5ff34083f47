"""Looks new rows up in stored rows: each run of batches is a build side, indexed once per node."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sparkext.build_sides.cached_rows import evict_other_entries
from sparkext.build_sides.index_cache import forget
from sparkext.build_sides.index_recipe import IndexRecipe, derive_index_recipe
from sparkext.config import Settings
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Resources
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.engine.worker_task import count_owned_cores
from sparkext.memory.probes import Tasks
from sparkext.plans.pipeline.spec import PipelineSpec
from sparkext.plans.streams.runs import BatchRun, list_compactions_before, list_runs_before
from sparkext.streaming.state.run_rows import RunRows
from sparkext.streaming.state.segments import SegmentInfo, sum_infos
from sparkext.streaming.state.stream_state import StoredSegment, StoredSide, StreamState

_NO_LIMIT = 1 << 62


class RunLookup:
    """Looks rows up in a state, for one task."""

    def __init__(self, state: StreamState, settings: Settings, tasks: Tasks) -> None:
        """Bind the state to the memory that the task may use."""
        self.state = state
        self._settings = settings
        self._threads = count_owned_cores()
        self._used_indexes: list[tuple[RunRows, IndexRecipe]] = []
        self._resources = Resources.of_this_task(tasks)
        self._earlier_runs: dict[tuple[int, range], list[RunRows]] = {}

    def before(self, side: int, stored: StoredSide, buckets: range) -> list[RunRows]:
        """Return the rows of these buckets from all batches before this one, as runs.

        Evict the indexes of compacted runs.
        """
        if (side, buckets) not in self._earlier_runs:
            parts = [part for run in list_compactions_before(self.state.batch) for part in run.parts]
            forget({self._create_stored_run(side, part, stored, buckets).digest() for part in parts})
            runs = list_runs_before(self.state.batch)
            self._earlier_runs[side, buckets] = [self._create_stored_run(side, run, stored, buckets) for run in runs]
        return self._earlier_runs[side, buckets]

    def now(self, side: int, stored: StoredSide, buckets: range, rows: pa.Table, info: SegmentInfo) -> RunRows:
        """Return the rows of this batch as a run. The next batch reuses its index."""
        return self._create_run(side, BatchRun(self.state.batch, self.state.batch), stored, buckets, rows, info)

    def found(self, spec: PipelineSpec, schema: pa.Schema, probe: pa.Table, build: RunRows) -> Iterator[pa.RecordBatch]:
        """Yield the results of joining probe rows with one build side."""
        recipe = derive_index_recipe(spec, 0, self._settings.debug_hash_mask)
        self._used_indexes.append((build, recipe))
        source = RowBatches(probe.to_batches(), spec, self._settings.morsel_max_rows)
        pipeline = create_pipeline(spec, [build.open(recipe)], schema, self._settings, self._resources)
        yield from pipeline.run(source)

    def evict_indexes(self) -> None:
        """Evict cached indexes beyond the limit of this node."""
        if self._used_indexes:
            evict_other_entries(self._used_indexes, self._settings.index_cache_max_bytes)

    def _create_stored_run(self, side: int, run: BatchRun, stored: StoredSide, buckets: range) -> RunRows:
        sources = tuple(self.state.sources(side, run, buckets))
        return self._create_run(side, run, stored, buckets, sources, sum_infos(source.info for source in sources))

    def _create_run(
        self,
        side: int,
        run: BatchRun,
        stored: StoredSide,
        buckets: range,
        rows: tuple[StoredSegment, ...] | pa.Table,
        info: SegmentInfo,
    ) -> RunRows:
        return RunRows(self.state.folder, side, run, buckets, stored, rows, info, _NO_LIMIT, self._threads)
