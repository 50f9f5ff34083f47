"""The function that joins what a batch brings of two streams, in one slot, with all that came before.

A unit joins the new rows of its left fragment with those of its right one that were there, the other way round, and
the new rows of both with each other, so every pair is met once: in the batch that brings the second of its rows.

    new left  × runs of the right side
    new right × runs of the left side          each run a build side, indexed once a node
    new left  × new right
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from sparkext import __version__
from sparkext.build_sides.index_recipe import IndexRecipe, index_recipe
from sparkext.build_sides.kept_rows import make_room
from sparkext.build_sides.rows_on_disk import share_of_headroom
from sparkext.exchange.cells import rows_of
from sparkext.kernels.threads import may_begin
from sparkext.memory import address_space, freed
from sparkext.memory.probes import Tasks, process_probe
from sparkext.plans.fragments import LEFT, RIGHT, Cut
from sparkext.plans.mfm import next_cut
from sparkext.plans.runs import Run, runs_before
from sparkext.plans.spec import PipelineSpec
from sparkext.rows.blank import blank_row
from sparkext.rows.collected import CollectedRows
from sparkext.rows.compression import decompressed
from sparkext.state.join_state import JoinState, Source, is_over
from sparkext.state.run_rows import RunRows
from sparkext.state.segments import SegmentInfo, total
from sparkext.storage.local_folder import local_folder
from sparkext.worker.join_pipeline import join_pipeline
from sparkext.worker.micro_batch import MicroBatch
from sparkext.worker.pipeline import Resources
from sparkext.worker.sources.row_batches import RowBatches
from sparkext.worker.stream_cells_task import NO_FRAGMENT
from sparkext.worker.stream_join import PROGRESS, PROGRESS_FIELDS, StreamJoin
from sparkext.worker.task_start import check_version, entered, owned_cores, settle

_PROGRESS = pa.struct([(name, pa.int64()) for name in PROGRESS_FIELDS])
_OTHER = {LEFT: RIGHT, RIGHT: LEFT}
_NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class StreamJoinTask:
    """Joins the cells of one slot. `made_by` is as in `PipelineTask`."""

    join: StreamJoin
    made_by: str = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join one partition, and store what it has brought."""
        check_version(self.made_by)
        address_space.check_room()
        settle()
        with entered(self.join.settings, self.join.tasks_sharing) as tasks:
            batch = MicroBatch.of_this_task()
            state = self.join.state(batch)
            state.claim(self.join.token)
            arrived = _Arrived(self.join, decompressed(batches))
            matches, told = 0, Counter[str]()
            try:
                for slot in arrived.slots:
                    one = _Slot(self.join, state, arrived, slot, batch, tasks)
                    for pairs in one.joined():
                        matches += pairs.num_rows
                        yield self._emitted(pairs, pa.nulls(pairs.num_rows, _PROGRESS))
                    told.update(one.stored())
                if told:
                    progress = pa.array([{**told, "matches": matches}], _PROGRESS)
                    yield self._emitted(blank_row(self.join.output_schema), progress)
            finally:
                freed.release_unless_ample()

    def _emitted(self, rows: pa.RecordBatch, progress: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*rows.columns, progress], names=[*rows.schema.names, PROGRESS])


class _Arrived:
    """What a batch has brought to a slot: the rows of each fragment, and what is told of them.

    `slots` has the number of the slot. If no task has sent anything, not even that, no slot has got anything, and any
    stands for all of them.
    """

    def __init__(self, join: StreamJoin, batches: Iterable[pa.RecordBatch]) -> None:
        self._join = join
        self._rows: dict[tuple[int, int], pa.Table] = {}
        self._checksums: dict[tuple[int, int], int] = defaultdict(int)
        self.slots: Sequence[int] = range(join.slots)
        collected: dict[tuple[int, int], CollectedRows] = {}
        for batch in batches:
            _, sides, fragments, checksums, cells = batch.columns
            for number in range(batch.num_rows):
                place = sides[number].as_py(), fragments[number].as_py()
                if place[1] == NO_FRAGMENT:
                    self.slots = [checksums[number].as_py()]
                    continue
                self._checksums[place] += checksums[number].as_py()
                if place not in collected:
                    collected[place] = CollectedRows(lambda rows, size: None, share_of_headroom, local_folder())
                for rows in rows_of(cells[number].as_buffer()):
                    collected[place].add((0, 0), rows)
        for place, rows in collected.items():
            with rows:
                self._rows[place] = rows.table(join.sides[place[0]].schema)

    def rows(self, side: int, fragment: int) -> pa.Table:
        found = self._rows.get((side, fragment))
        return self._join.sides[side].schema.empty_table() if found is None else found

    def info(self, side: int, fragment: int) -> SegmentInfo:
        checksum = self._checksums.get((side, fragment), 0) % (1 << 64)
        return self._join.sides[side].info(self.rows(side, fragment), checksum)


class _Slot:
    """One task: its units, one after the other."""

    def __init__(
        self, join: StreamJoin, state: JoinState, arrived: _Arrived, number: int, batch: MicroBatch, tasks: Tasks
    ) -> None:
        self._join, self._state, self._arrived = join, state, arrived
        self._number = number
        self._specs = [PipelineSpec.from_json(spec) for spec in join.specs]
        self._oldest = batch.watermark() if join.sides[LEFT].event_time is not None else -(1 << 63)
        self._threads = owned_cores()
        self._used: list[tuple[RunRows, IndexRecipe]] = []
        probe = process_probe()
        self._resources = Resources(
            lambda: probe.headroom(tasks),
            lambda limit: tasks(limit, probe.binding_group),
            freed.reclaim,
            may_begin(self._threads),
        )

    def joined(self) -> Iterator[pa.RecordBatch]:
        """Yield the pairs that the batch has brought."""
        cut = self._state.cut
        now = Run(self._state.batch, self._state.batch)
        for unit, fragments in enumerate(cut.units):
            if unit % self._join.slots != self._number:
                continue
            for side in (LEFT, RIGHT):
                new, other = self._arrived.rows(side, fragments[side]), _OTHER[side]
                if not new.num_rows:
                    continue
                lines = cut.lines(other, fragments[other])
                builds = [self._run(other, run, lines) for run in runs_before(self._state.batch)]
                if side == LEFT:
                    place = other, fragments[other]
                    builds.append(self._rows(other, now, lines, self._arrived.rows(*place), self._arrived.info(*place)))
                for build in builds:
                    if not is_over(build.info, self._oldest):
                        yield from self._pairs(side, new, build)
        if self._used:
            make_room(*zip(*self._used, strict=True))

    def stored(self) -> dict[str, int]:
        """Write what has come of the fragments that are this slot's to write, and merge runs.

        Return what is told of the batch, this slot's share of it.
        """
        state, cut, slots = self._state, self._state.cut, self._join.slots
        rows, kept = [0, 0], list[SegmentInfo]()
        for side, stored in enumerate(self._join.sides):
            kept += [info for info in state.kept(side, self._number, slots) if not is_over(info, self._oldest)]
            for fragment in range(cut.fragments(side)):
                if cut.writer(side, fragment, slots) == self._number:
                    kept.append(self._store(side, fragment))
                    rows[side] += kept[-1].rows
            state.merge(side, stored, self._number, slots, self._oldest)
            if self._number == 0:
                state.sweep(side)
        units, together = len(range(self._number, len(cut.units), slots)), total(kept)
        return {
            "left_rows": rows[LEFT],
            "right_rows": rows[RIGHT],
            "state_rows": together.rows,
            "state_bytes": together.bytes,
            "segments": len(kept),
            "units": units,
        }

    def _store(self, side: int, fragment: int) -> SegmentInfo:
        stored, place = self._join.sides[side], (side, fragment)
        rows, info = self._arrived.rows(*place), self._arrived.info(*place)
        if place != (LEFT, 0):
            return self._state.store(*place, stored, rows, info)
        came = self._came()
        return self._state.store_head(stored, rows, info, came, self._next_cut(came))

    def _came(self) -> list[int]:
        """Return how many bytes of each side have come. Who writes the first fragment of one has that of the other."""
        cut = self._state.cut
        return [
            before + cut.fragments(side) * self._arrived.rows(side, 0).nbytes
            for side, before in enumerate(self._state.came())
        ]

    def _next_cut(self, came: list[int]) -> Cut:
        settings, (left, right) = self._join.settings, came
        memory, way = settings.streams_unit_max_bytes, settings.debug_slots
        return next_cut(self._state.cut, left, right, self._join.slots, memory, way)

    def _run(self, side: int, run: Run, lines: range) -> RunRows:
        """Return the rows of some batches before this one."""
        sources = tuple(self._state.sources(side, run, lines))
        return self._rows(side, run, lines, sources, total(source.info for source in sources))

    def _rows(
        self, side: int, run: Run, lines: range, rows: tuple[Source, ...] | pa.Table, info: SegmentInfo
    ) -> RunRows:
        settings = self._join.settings
        limits = (_NO_LIMIT, settings.index_cache_max_bytes)
        return RunRows(self._state.folder, side, run, lines, self._join.sides[side], rows, info, *limits, self._threads)

    def _pairs(self, side: int, new: pa.Table, rows: RunRows) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of new rows of a side with rows of the other one."""
        spec, recipe = self._specs[side], self._recipes[side]
        self._used.append((rows, recipe))
        build = rows.open(recipe)
        source = RowBatches(new.to_batches(), spec, self._join.settings.morsel_max_rows)
        yield from join_pipeline(spec, [build], self._join.output_schema, self._join.settings, self._resources).run(
            source
        )

    @cached_property
    def _recipes(self) -> list[IndexRecipe]:
        return [index_recipe(spec, 0, self._join.settings.debug_hash_mask) for spec in self._specs]
