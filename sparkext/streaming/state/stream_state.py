"""The state of a streaming operator before a batch: the files with the rows of its sides, here for a join.

    <checkpoint>/sparkext/<name>/left/64-127/0.segment        fragment 0 of the rows of batches 64 to 127
                                     128-135/0.segment
                                     136-136/0.segment
                                right/…

The number of a batch is part of the names of its files. A batch that runs again therefore replaces its files, and no
batch reads files of an unfinished batch. The required segments follow from the number of the batch
(`plans.streams.runs`) and from the partitioning of the sides (`plans.shuffle.fragments`), which is stored in the
segments of the batch before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.errors import StateError
from sparkext.plans.shuffle.fragments import LEFT, GridShape, GridShapes
from sparkext.plans.streams.runs import BatchRun, list_compactions_before, list_runs_before
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.fingerprints import hash_row_contents
from sparkext.rows.times import convert_to_microseconds
from sparkext.rows.types import make_schema_nullable
from sparkext.storage.last_used import LruCache
from sparkext.streaming.state.nearest_order import NearestOrder
from sparkext.streaming.state.places import Location
from sparkext.streaming.state.segments import (
    SegmentInfo,
    checksum_of,
    find_latest,
    read_metadata,
    read_segment,
    write_segment,
)

_MOST_CACHED = 4_096
_metadata_cache: LruCache[tuple[str, Location], dict[str, Any]] = LruCache(_MOST_CACHED)
_begun: LruCache[tuple[str, Location, int], None] = LruCache(_MOST_CACHED)
"""Runs of queries in which this process has written to a side and removed the claims of other runs."""

_CLAIMS = "claims"
_BUCKET = pa.field("bucket", pa.uint16())
_ROW = pa.field("row", pa.int64())


@dataclass(frozen=True)
class StoredSide:
    """The stored columns of one side.

    These are the columns of its rows, their expiry time (if they expire), their bucket, and a row number if they are
    `numbered`. `event_time`: the column with the event time, None if it is not needed. `retained`: the number of µs
    during which other rows can match a row, until it expires; None without expiry. `order`: if given, only the nearest
    row in this order matches.

    `rows` may be the schema of a query; all columns become nullable in the state (`make_schema_nullable`).
    """

    rows: pa.Schema
    event_time: int | None = None
    retained: int | None = None
    numbered: bool = False
    order: NearestOrder | None = None

    def __post_init__(self) -> None:
        """Make all columns nullable, so that all rows of a side have the same schema."""
        object.__setattr__(self, "rows", make_schema_nullable(self.rows))

    @property
    def sent(self) -> pa.Schema:
        """The columns in received blocks."""
        if self.retained is None or self.event_time is None:
            return self.rows.append(_BUCKET)
        return self.rows.append(pa.field("until", self.rows.types[self.event_time])).append(_BUCKET)

    @property
    def schema(self) -> pa.Schema:
        """The stored columns."""
        return self.sent.append(_ROW) if self.numbered else self.sent

    @property
    def until(self) -> int | None:
        """The column with the expiry time, None if rows do not expire."""
        return None if self.retained is None else len(self.rows)

    @property
    def bucket(self) -> int:
        """The column with the bucket."""
        return len(self.rows) + (self.until is not None)

    @property
    def number(self) -> int:
        """The column with the row number."""
        return self.bucket + 1

    @property
    def hidden(self) -> tuple[int, ...]:
        """The columns that are not part of the user's schema."""
        return tuple(range(len(self.rows), len(self.schema)))

    def stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with their expiry time, if they expire, but without their bucket."""
        if self.retained is None or self.event_time is None:
            return rows
        until = pc.add(rows.column(self.event_time), pa.scalar(self.retained, pa.duration("us")))
        return rows.append_column(pa.field("until", until.type), until)

    def info(self, rows: pa.RecordBatch | pa.Table, checksum: int | None = None) -> SegmentInfo:
        """Return the metadata of rows. `checksum`: the result of `checksum(rows)`, if it is known."""
        checksum = self.checksum(rows) if checksum is None else checksum
        until = None if self.until is None else find_latest(rows.column(self.until))
        return SegmentInfo(rows.num_rows, checksum, until)

    def checksum(self, rows: pa.RecordBatch | pa.Table) -> int:
        """Return the sum of the rows' fingerprints over all stored columns."""
        return checksum_of(hash_row_contents([make_contiguous(column) for column in rows.columns], rows.num_rows))


@dataclass(frozen=True)
class MatchedRows(StoredSide):
    """The row numbers of matched left rows, with the expiry times of these rows."""

    @classmethod
    def of(cls, left: StoredSide) -> MatchedRows:
        """Return the stored columns for the left side of a join."""
        assert left.event_time is not None, "rows are decided when their time is over"
        return cls(pa.schema([_ROW, pa.field("until", left.rows.types[left.event_time])]))

    @property
    def until(self) -> int | None:
        """The second column."""
        return 1

    @property
    def bucket(self) -> int:
        """The third column."""
        return 2


@dataclass(frozen=True)
class StoredSegment:
    """A segment with its metadata. `whole`: whether all of its rows belong to the requested buckets."""

    place: Location
    info: SegmentInfo
    whole: bool


class StreamState:
    """The state before one batch, in one run of a query."""

    def __init__(
        self, folder: Location, sides: Sequence[str], batch: int, run: str, first: GridShape, made_by: str
    ) -> None:
        """Read the partitioning of the sides.

        `sides`: their folder names; `first`: the initial partitioning; `made_by`: a text that describes the operator.

        Raises
        ------
        StateError
            The state is missing, damaged or belongs to another operator.
        """
        self.folder = folder
        self.batch = batch
        self._sides = sides
        self._run = run
        self._made_by = made_by
        self.cuts = GridShapes(((0, first),))
        self.head: Mapping[str, Any] = {}
        if batch:
            self.head = self.read_previous_metadata(LEFT, 0)
            if self.head["made_by"] != made_by:
                raise StateError(
                    f"the state in {folder} belongs to another operator ({self.head['made_by']}), not to {made_by}:"
                    " give this operator another name (name=…), or start with a new checkpoint"
                )
            self.cuts = GridShapes.from_data(self.head["cuts"])

    @property
    def cut(self) -> GridShape:
        """The partitioning of both sides in this batch."""
        return self.cuts.at(self.batch)

    def change_partitioning(self, grid: GridShape) -> None:
        """Change the partitioning of both sides from this batch on."""
        self.cuts = self.cuts.derive_next(self.batch, grid)

    def read_previous_metadata(self, side: int, fragment: int) -> Mapping[str, Any]:
        """Return the metadata that the batch before stored with a fragment."""
        return self._read_metadata(self._locate_segment(side, BatchRun(self.batch - 1, self.batch - 1), fragment))

    def sources(self, side: int, run: BatchRun, buckets: range) -> list[StoredSegment]:
        """Return the segments of a run that have rows of these buckets.

        A run that ends just before this batch is compacted in this batch, so its parts are used. Its compacted segments
        may exist already, but they may be from before the query was reset.
        """
        if run.parts and run.last == self.batch - 1:
            return [source for part in run.parts for source in self.sources(side, part, buckets)]
        grid = self.cuts.at(run.last)
        segments = [
            (self._locate_segment(side, run, number), grid.buckets(side, number))
            for number in grid.having(side, buckets)
        ]
        return [
            StoredSegment(
                location,
                self._read_metadata(location)["info"],
                segment_buckets.start >= buckets.start and segment_buckets.stop <= buckets.stop,
            )
            for location, segment_buckets in segments
        ]

    def kept(self, side: int, partition: int, partitions: int) -> list[SegmentInfo]:
        """Return the metadata of the segments of a side that existed before the batch, for one partition's share."""
        last = self.batch - 1
        runs = [*list_runs_before(last), BatchRun(last, last)] if self.batch else []
        return [
            self._read_metadata(self._locate_segment(side, run, fragment))["info"]
            for run in runs
            for fragment in range(partition, self.cuts.at(run.last).fragments(side), partitions)
        ]

    def store_manifest(
        self, stored: StoredSide, rows: pa.Table, info: SegmentInfo, next_grid: GridShape, **metadata: Any
    ) -> SegmentInfo:
        """Write the rows of the left side's first fragment, with the metadata for the next batch.

        `next_grid` is the partitioning of the next batch, which reads the values in `metadata` from its `head`.
        """
        cuts = self.cuts.derive_next(self.batch + 1, next_grid).to_data()
        return self.store(LEFT, 0, stored, rows, info, made_by=self._made_by, cuts=cuts, **metadata)

    def store(
        self, side: int, fragment: int, stored: StoredSide, rows: pa.Table, info: SegmentInfo, **metadata: Any
    ) -> SegmentInfo:
        """Write the rows of a fragment in this batch; return `info` with their bytes on disk."""
        if (self._run, self.folder, side) not in _begun:
            (self.folder / _CLAIMS).clear(but=self._run)
            _begun[self._run, self.folder, side] = None
        location = self._locate_segment(side, BatchRun(self.batch, self.batch), fragment)
        return write_segment(location, stored.schema, rows.to_batches(), lambda: info, **metadata)

    def merge(self, side: int, stored: StoredSide, partition: int, partitions: int, oldest: int) -> None:
        """Write the compacted runs of a side that exist from this batch on, for one partition's share of fragments.

        Rows that expired by `oldest` (µs) are left out.
        """
        for run in list_compactions_before(self.batch):
            grid = self.cuts.at(run.last)
            for fragment in range(grid.fragments(side)):
                if (fragment + side) % partitions != partition:
                    continue
                buckets = grid.buckets(side, fragment)
                sources = [source for part in run.parts for source in self.sources(side, part, buckets)]
                rows = _UnexpiredRows(stored, sources, buckets, oldest)
                write_segment(self._locate_segment(side, run, fragment), stored.schema, rows.batches(), rows.info)

    def sweep(self, side: int, retained: int) -> None:
        """Remove the parts of runs compacted `retained` batches ago: a query is reset by at most `retained` batches."""
        for run in list_compactions_before(self.batch - retained):
            fragments = range(self.cuts.at(run.last).fragments(side))
            if all(self._exists(self._locate_segment(side, run, number)) for number in fragments):
                for part in run.parts:
                    self._locate_run(side, part).clear()

    def claim(self, token: str) -> None:
        """Check that no other operator of this run of the query uses the same state.

        Raises
        ------
        StateError
            Another operator uses it.
        """
        if (self.folder / _CLAIMS / self._run).claim(token) != token:
            raise StateError(
                f"two equal operators of a query would share the state in {self.folder}: give one of them another name"
                " (name=…)"
            )

    def _locate_run(self, side: int, run: BatchRun) -> Location:
        return self.folder / self._sides[side] / str(run)

    def _locate_segment(self, side: int, run: BatchRun, fragment: int) -> Location:
        return self._locate_run(side, run) / f"{fragment}.segment"

    def _read_metadata(self, location: Location) -> dict[str, Any]:
        """Read the metadata of a segment, cached per run of a query: the files of a finished batch do not change."""
        metadata = _metadata_cache.get((self._run, location))
        if metadata is None:
            metadata = _metadata_cache[self._run, location] = read_metadata(location)
        return metadata

    def _exists(self, location: Location) -> bool:
        return (self._run, location) in _metadata_cache or location.exists()


class _UnexpiredRows:
    """The rows of segments that belong to some buckets and have not expired."""

    def __init__(self, stored: StoredSide, sources: list[StoredSegment], buckets: range, oldest: int) -> None:
        self._stored, self._sources, self._buckets = stored, sources, buckets
        self._oldest = oldest
        self._info = SegmentInfo()

    def batches(self) -> Iterator[pa.RecordBatch]:
        order = self._stored.order
        sources = [source for source in self._sources if not is_expired(source.info, self._oldest)]
        keeps_all = self._stored.until is None and order is None
        for source in sources:
            if keeps_all and source.whole:
                self._info += source.info
                yield from read_segment(source.place)
        selected = self._select_rows([source for source in sources if not (keeps_all and source.whole)])
        for batch in selected if order is None else order.needed(selected, self._oldest):
            self._info += self._stored.info(batch)
            yield batch

    def info(self) -> SegmentInfo:
        return self._info

    def _select_rows(self, sources: list[StoredSegment]) -> Iterator[pa.RecordBatch]:
        for source in sources:
            for batch in read_segment(source.place):
                yield self._drop_expired(select_buckets(batch, self._stored.bucket, self._buckets))

    def _drop_expired(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._stored.until is None:
            return batch
        is_fresh = convert_to_microseconds(batch.column(self._stored.until), missing=(1 << 63) - 1) > self._oldest
        return batch if is_fresh.all() else batch.filter(pa.array(is_fresh))


def is_expired(info: SegmentInfo, oldest: int) -> bool:
    """Return whether all rows expired by a time, or there are no rows."""
    return not info.rows or (info.until is not None and info.until <= oldest)


def select_buckets(batch: pa.RecordBatch, column: int, buckets: range) -> pa.RecordBatch:
    """Return the rows whose bucket, in this column, is in `buckets`."""
    row_buckets = np.asarray(batch.column(column))
    is_inside = (row_buckets >= buckets.start) & (row_buckets < buckets.stop)
    return batch if is_inside.all() else batch.filter(pa.array(is_inside))
