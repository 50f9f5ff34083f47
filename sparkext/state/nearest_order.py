"""The order of rows of which only the nearest in time matches: the same, in whichever order and batch they came.

Rows of one time are told apart by a column that users name, or, without one, by what they hold. And what no row asks
for any more is dropped: where the last row up to a time is wanted, that is all but the last up to the watermark.

    watermark                   ▼
    time       1    3    4    6    7    9
    key        a    a    b    a    b    a        of those up to the watermark, only the last of each key
               ✗    ✗    ✓    ✓    ✓    ✓
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.buffers import Int64Array
from sparkext.rows.contiguous import contiguous
from sparkext.rows.fingerprints import row_hashes
from sparkext.rows.times import microseconds

_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class NearestOrder:
    """Rows of `width` columns: column `time` tells when they happened, `ties` orders those of one time, if it is given.

    `keys` have to be equal, too. `last_only`: no row asks for any but the last one up to a time.
    """

    width: int
    time: int
    ties: int | None
    keys: tuple[int, ...]
    last_only: bool

    def order(self, rows: pa.Table) -> Int64Array:
        """Return the numbers of rows in the order in which those of one time are taken: int64[n]."""
        hashes = row_hashes([contiguous(rows.column(number)) for number in range(self.width)], rows.num_rows)
        if self.ties is None:
            return np.argsort(hashes, kind="stable")
        compared = pa.table({"ties": rows.column(self.ties), "hash": hashes})
        keys = [("ties", "ascending"), ("hash", "ascending")]
        found = pc.sort_indices(compared, sort_keys=keys)
        return np.asarray(found, dtype=np.int64)

    def ordered(self, rows: pa.Table) -> pa.Table:
        """Return rows so that of each time the last one in the order is the last."""
        return rows.take(pa.array(self.order(rows)))

    def needed(self, batches: Iterator[pa.RecordBatch], watermark: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that rows after `watermark` (µs) may ask for.

        Of those up to it, it holds no more than about twice as many as there are keys.
        """
        if not self.last_only:
            yield from batches
            return
        past: list[pa.RecordBatch] = []
        held, last = 0, 0
        for batch in batches:
            is_past = microseconds(batch.column(self.time), missing=-(1 << 63)) <= watermark
            if not is_past.all():
                yield batch.filter(pa.array(~is_past))
            past.append(batch.filter(pa.array(is_past)))
            held += past[-1].num_rows
            if held > max(_AT_ONCE, 2 * last):
                past = self._last(past).to_batches()
                held = last = sum(rows.num_rows for rows in past)
        if held:
            yield from self._last(past).to_batches()

    def _last(self, batches: list[pa.RecordBatch]) -> pa.Table:
        """Return of each key the last row. Keys that are equal only as a join compares them may have one each."""
        rows = pa.Table.from_batches(batches)
        order = self.order(rows)
        times = microseconds(contiguous(rows.column(self.time)), missing=-(1 << 63))
        order = order[np.argsort(times[order], kind="stable")]
        keys = [f"k{number}" for number in range(len(self.keys))]
        columns = [rows.column(number) for number in self.keys]
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        grouped = pa.Table.from_arrays([*columns, pa.array(ranks)], names=[*keys, "rank"]).group_by(keys)
        kept = order[np.asarray(grouped.aggregate([("rank", "max")]).column("rank_max"))]
        return rows.take(pa.array(np.sort(kept)))
