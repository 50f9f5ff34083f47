"""The order of rows for joins with the nearest row in time. It does not depend on batches or on the order within them.

Rows of equal time are ordered by a column that the user names, or otherwise by their fingerprint. Rows that can no
longer be the result of a lookup are dropped. If only the last row up to a time is looked up, the state has one row per
key up to the watermark:

    watermark                   ▼
    time       1    3    4    6    7    9
    key        a    a    b    a    b    a        up to the watermark, only the last row of each key is kept
               ✗    ✗    ✓    ✓    ✓    ✓
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.fingerprints import hash_row_contents
from sparkext.rows.times import convert_to_microseconds

_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class NearestOrder:
    """The order of rows with `width` columns.

    Column `time` is the event time; `ties`, if given, orders rows of equal time. `keys`: columns that a lookup compares
    for equality. `last_only`: whether only the last row up to a time is looked up.
    """

    width: int
    time: int
    ties: int | None
    keys: tuple[int, ...]
    last_only: bool

    def order(self, rows: pa.Table) -> Int64Array:
        """Return the row numbers, ordered by ties and fingerprint, but not by time: int64[n]."""
        hashes = hash_row_contents(
            [make_contiguous(rows.column(number)) for number in range(self.width)], rows.num_rows
        )
        if self.ties is None:
            return np.argsort(hashes, kind="stable")
        sort_columns = pa.table({"ties": rows.column(self.ties), "hash": hashes})
        keys = [("ties", "ascending"), ("hash", "ascending")]
        order = pc.sort_indices(sort_columns, sort_keys=keys)
        return np.asarray(order, dtype=np.int64)

    def ordered(self, rows: pa.Table) -> pa.Table:
        """Return the rows ordered by ties and fingerprint: of rows with equal time, `backward` finds the last one."""
        return rows.take(pa.array(self.order(rows)))

    def needed(self, batches: Iterator[pa.RecordBatch], watermark: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that lookups after `watermark` (µs) may need.

        Memory holds at most about twice as many rows up to the watermark as there are keys.
        """
        if not self.last_only:
            yield from batches
            return
        past: list[pa.RecordBatch] = []
        past_rows, needed_rows = 0, 0
        for batch in batches:
            is_past = convert_to_microseconds(batch.column(self.time), missing=-(1 << 63)) <= watermark
            if not is_past.all():
                yield batch.filter(pa.array(~is_past))
            past.append(batch.filter(pa.array(is_past)))
            past_rows += past[-1].num_rows
            if past_rows > max(_AT_ONCE, 2 * needed_rows):
                past = self._select_last(past).to_batches()
                past_rows = needed_rows = sum(rows.num_rows for rows in past)
        if past_rows:
            yield from self._select_last(past).to_batches()

    def _select_last(self, batches: list[pa.RecordBatch]) -> pa.Table:
        """Return the last row of each key. Keys that only a join considers equal may be kept separately."""
        rows = pa.Table.from_batches(batches)
        order = self.order(rows)
        times = convert_to_microseconds(make_contiguous(rows.column(self.time)), missing=-(1 << 63))
        order = order[np.argsort(times[order], kind="stable")]
        keys = [f"k{number}" for number in range(len(self.keys))]
        columns = [rows.column(number) for number in self.keys]
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        grouped = pa.Table.from_arrays([*columns, pa.array(ranks)], names=[*keys, "rank"]).group_by(keys)
        last_rows = order[np.asarray(grouped.aggregate([("rank", "max")]).column("rank_max"))]
        return rows.take(pa.array(np.sort(last_rows)))
