"""The rows of a run of batches as a build side: each node indexes them once, and caches the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from sparkext.build_sides.cached_rows import CachedRows
from sparkext.plans.streams.runs import BatchRun
from sparkext.rows.collected import CollectedRows
from sparkext.storage.fingerprint import fingerprint_of
from sparkext.streaming.state.places import Location
from sparkext.streaming.state.segments import SegmentInfo, read_segment
from sparkext.streaming.state.stream_state import StoredSegment, StoredSide, select_buckets


@dataclass(frozen=True)
class RunRows(CachedRows):
    """The rows of one side of a join, of some batches and buckets.

    They are in segments, or in a table if they belong to the current batch. `folder` is the folder of the join's state;
    the other fields are as in `CachedRows`.
    """

    NOT_IN_FINGERPRINT: ClassVar[Mapping[str, str]] = {
        **CachedRows.NOT_IN_FINGERPRINT,
        "rows": "their current location: `info` identifies the rows by the sum of their fingerprints",
    }

    folder: Location
    side: int
    run: BatchRun
    buckets: range
    stored: StoredSide
    rows: tuple[StoredSegment, ...] | pa.Table
    info: SegmentInfo
    max_bytes: int
    threads: int

    def digest(self) -> str:
        """Return a fingerprint of the batches and the rows; a repeated batch may have other rows."""
        return fingerprint_of(self)

    def rows_read(self) -> int:
        """Return the number of rows in the segments."""
        return self.info.rows

    def collect(self, rows: CollectedRows) -> tuple[pa.Table, Sequence[str]]:
        """Read all rows."""
        order = self.stored.order
        table = self._read_rows(rows)
        return (table if order is None else order.ordered(table)), ()

    def _read_rows(self, rows: CollectedRows) -> pa.Table:
        if isinstance(self.rows, pa.Table):
            return self.rows
        for number, source in enumerate(self.rows):
            for position, batch in enumerate(read_segment(source.place)):
                rows.add(
                    (number, position),
                    batch if source.whole else select_buckets(batch, self.stored.bucket, self.buckets),
                )
        return rows.table(self.stored.schema)
