"""The worker function that joins a batch of two streams with all stored rows, in one partition.

Each unit joins the new rows of its left fragment with the stored rows of its right fragment, the reverse, and the new
rows of both with each other. Each pair is found once, in the batch that contains the later of its two rows.

    new left  × stored runs of the right side
    new right × stored runs of the left side          each run is a build side, indexed once per node
    new left  × new right
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sparkext.memory.probes import Tasks
from sparkext.plans.shuffle.fragments import LEFT, MATCHED, RIGHT, GridShape
from sparkext.plans.shuffle.grid_size import choose_next_shape
from sparkext.rows.blank import make_blank_row
from sparkext.streaming.join.closed_rows import ClosedRows
from sparkext.streaming.join.description import PROGRESS_FIELDS, StreamTask
from sparkext.streaming.join.received_rows import ReceivedRows
from sparkext.streaming.progress import PROGRESS
from sparkext.streaming.state.micro_batch import MicroBatch
from sparkext.streaming.state.run_lookup import RunLookup
from sparkext.streaming.state.run_rows import RunRows
from sparkext.streaming.state.segments import SegmentInfo, sum_infos
from sparkext.streaming.state.stream_state import StreamState, is_expired

_PROGRESS = pa.struct([(name, pa.int64()) for name in PROGRESS_FIELDS])
_FOR_EVER = -(1 << 63)


class ExpiredResults(Protocol):
    """The results of left rows that are emitted when they expire."""

    def find_expired(self, low: int, high: int) -> Iterator[pa.RecordBatch]:
        """Yield the results of left rows that expire after `low` and up to `high`, both in µs."""
        ...


@dataclass(frozen=True)
class StreamJoinTask(StreamTask):
    """Joins the received blocks of one partition."""

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Emit the results of one partition, and store its new rows."""
        batch = MicroBatch.of_this_task()
        state = self.join.state(batch)
        state.claim(self.join.token)
        received = ReceivedRows(self.join, batch.number, batches)
        lookup = RunLookup(state, self.join.settings, tasks)
        rows_out, metrics = 0, Counter[str]()
        for number in received.partitions:
            partition = _Partition(self, lookup, received, number, batch)
            for rows in partition.joined():
                rows_out += rows.num_rows
                yield self._create_output(rows, pa.nulls(rows.num_rows, _PROGRESS))
            metrics.update(partition.stored())
        lookup.evict_indexes()
        progress = pa.array([{**metrics, "matches": rows_out}], _PROGRESS)
        yield self._create_output(make_blank_row(self.join.output_schema), progress)

    def expired_results(self, lookup: RunLookup, left: list[RunRows], right: list[RunRows]) -> ExpiredResults:
        """Return the results of left rows that expire, from all runs of both sides of a unit. For as-of joins only."""
        raise NotImplementedError

    def _create_output(self, rows: pa.RecordBatch, progress: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*rows.columns, progress], names=[*rows.schema.names, PROGRESS])


class _Partition:
    """The units of a partition, processed one after the other."""

    def __init__(
        self, task: StreamJoinTask, lookup: RunLookup, received: ReceivedRows, number: int, batch: MicroBatch
    ) -> None:
        join = task.join
        self._task = task
        self._join, self._lookup, self._received, self._number = join, lookup, received, number
        self._state: StreamState = lookup.state
        self._batch = batch
        self._specs = join.specs
        self._oldest = batch.watermark() if join.sides[LEFT].event_time is not None else _FOR_EVER
        left = join.sides[LEFT]
        hidden = [left.schema.field(column) for column in left.hidden] if join.decides else []
        self._pair_schema = pa.schema([*join.output_schema, *hidden])
        self._first_matches: dict[int, tuple[pa.Table, SegmentInfo]] = {}

    def joined(self) -> Iterator[pa.RecordBatch]:
        """Yield the results of the batch."""
        for unit, fragments in enumerate(self._state.cut.units):
            if unit % self._join.partitions == self._number:
                if self._join.is_as_of:
                    yield from self._join_nearest(fragments)
                elif self._join.decides:
                    yield from self._join_and_close(fragments)
                else:
                    yield from self._join_pairs(fragments)

    def _join_pairs(self, fragments: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        """Yield the matching pairs of a unit."""
        grid, sides = self._state.cut, self._join.sides
        for side, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
            new_rows = self._received.rows(side, fragments[side])
            if not new_rows.num_rows:
                continue
            buckets, fragment_id = grid.buckets(other, fragments[other]), (other, fragments[other])
            builds = [*self._lookup.before(other, sides[other], buckets)]
            if side == LEFT:
                rows, info = self._received.rows(*fragment_id), self._received.info(*fragment_id)
                builds.append(self._lookup.now(other, sides[other], buckets, rows, info))
            for build in builds:
                if not is_expired(build.info, self._oldest):
                    yield from self._lookup.found(self._specs[side], self._pair_schema, new_rows, build)

    def _join_nearest(self, fragments: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        """Yield a unit's expired left rows, each with the nearest right row."""
        left, right = (self._list_runs(side, fragment) for side, fragment in enumerate(fragments))
        expired = self._task.expired_results(self._lookup, left, right)
        yield from expired.find_expired(self._oldest, self._batch.next_watermark())

    def _list_runs(self, side: int, fragment: int) -> list[RunRows]:
        """Return all rows of a fragment as runs, including the rows of this batch."""
        stored, buckets = self._join.sides[side], self._state.cut.buckets(side, fragment)
        rows, info = self._received.rows(side, fragment), self._received.info(side, fragment)
        return [*self._lookup.before(side, stored, buckets), self._lookup.now(side, stored, buckets, rows, info)]

    def _join_and_close(self, fragments: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of a unit, its left rows that matched for the first time, and its unmatched expired rows."""
        fragment = fragments[LEFT]
        buckets = self._state.cut.buckets(LEFT, fragment)
        closed_rows = ClosedRows(self._join, self._lookup, buckets, self._list_runs(LEFT, fragment))
        for pairs in self._join_pairs(fragments):
            out = closed_rows.take(pairs)
            if out is not None:
                yield out
        matches, first_matches = closed_rows.settle_matches()
        if first_matches is not None:
            yield first_matches
        self._first_matches[fragment] = matches, closed_rows.info(matches)
        yield from closed_rows.over(matches, self._oldest, self._batch.next_watermark())

    def stored(self) -> dict[str, int]:
        """Write the new rows of the fragments that this partition stores, and compact runs.

        Return this partition's share of the batch metrics.
        """
        state, grid, partitions = self._state, self._state.cut, self._join.partitions
        rows, segments = [0, 0], list[SegmentInfo]()
        for side, stored in enumerate(self._join.sides):
            segments += [
                info for info in state.kept(side, self._number, partitions) if not is_expired(info, self._oldest)
            ]
            for fragment in self._list_written_fragments(side):
                segments.append(self._store(side, fragment))
                rows[side] += segments[-1].rows
            state.merge(side, stored, self._number, partitions, self._oldest)
        if self._join.decides:
            for fragment in self._list_written_fragments(MATCHED):
                state.store(MATCHED, fragment, self._join.matched, *self._first_matches[fragment])
            state.merge(MATCHED, self._join.matched, self._number, partitions, self._oldest)
        if self._number == 0:
            for side in (LEFT, RIGHT, MATCHED)[: 3 if self._join.decides else 2]:
                state.sweep(side, self._batch.retained)
        units, total = len(range(self._number, len(grid.units), partitions)), sum_infos(segments)
        return {
            "left_rows": rows[LEFT],
            "right_rows": rows[RIGHT],
            "state_rows": total.rows,
            "state_bytes": total.bytes,
            "segments": len(segments),
            "units": units,
        }

    def _list_written_fragments(self, side: int) -> list[int]:
        """Return the fragments of a side that this partition writes."""
        grid, partitions = self._state.cut, self._join.partitions
        return [
            fragment
            for fragment in range(grid.fragments(side))
            if grid.writer(side, fragment, partitions) == self._number
        ]

    def _store(self, side: int, fragment: int) -> SegmentInfo:
        stored, fragment_id = self._join.sides[side], (side, fragment)
        rows, info = self._received.rows(*fragment_id), self._received.info(*fragment_id)
        if fragment_id != (LEFT, 0):
            return self._state.store(*fragment_id, stored, rows, info)
        received_bytes = self._count_received_bytes()
        return self._state.store_manifest(
            stored, rows, info, self._choose_next_grid(received_bytes), received=received_bytes
        )

    def _count_received_bytes(self) -> list[int]:
        """Return the received bytes of both sides so far, extrapolated from the first fragment of each side.

        The partition that writes the first left fragment also receives the first right fragment.
        """
        grid, earlier = self._state.cut, self._state.head.get("received", (0, 0))
        return [size + grid.fragments(side) * self._received.bytes(side) for side, size in enumerate(earlier)]

    def _choose_next_grid(self, received_bytes: list[int]) -> GridShape:
        if self._join.keeps_right_whole:
            return self._state.cut
        settings, (left, right) = self._join.settings, received_bytes
        memory, policy = settings.streams_unit_max_bytes, settings.debug_partitions
        return choose_next_shape(self._state.cut, left, right, self._join.partitions, memory, policy)
