"""Rows in the order of time, independent of the order in which they were received.

Rows with equal timestamps are ordered by a column that users specify, if any, and then by a hash of their contents or
by an assigned number. Rows that are still tied are equal in all columns, or in the right order already.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.sort.merge_runs import merge_runs
from sparkext.kernels.sort.radix_sort import sort_segments, sort_words
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.fingerprints import hash_row_contents
from sparkext.rows.times import convert_to_microseconds


@dataclass(frozen=True)
class TimeOrder:
    """Order of rows with `width` columns: by column `time`, then by column `ties`, if given.

    `rank`: an int64 column that orders the remaining ties; None: the hash of the rows' contents does.
    """

    width: int
    time: int
    ties: int | None = None
    rank: int | None = None

    def order(self, rows: pa.Table, starts: Int64Array | None = None) -> RowIds:
        """Return the indexes of rows in order: RowIds[n].

        `starts`: the rows consist of sorted runs; run i is from `starts[i]` to before `starts[i + 1]`.
        """
        times = freeze(convert_to_microseconds(make_contiguous(rows.column(self.time))))
        if starts is None:
            words, order = sort_words(times, freeze(np.arange(times.size, dtype=row_id_dtype(times.size))))
        else:
            words, order = merge_runs(times, starts)
        same = words[1:] == words[:-1]
        if not same.any():
            return order
        tied = np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))
        tied_rows = order[tied]
        first = np.concatenate([[True], words[tied][1:] != words[tied][:-1]])
        ordered = order.copy()
        ordered[tied] = self._in_order(rows, tied_rows, first)
        return freeze(ordered)

    def _in_order(self, rows: pa.Table, tied_rows: RowIds, first: np.ndarray) -> RowIds:
        """Order the rows `tied_rows` within segments; `first` marks the rows that begin a segment."""
        ranks = self._ranks(rows, tied_rows)
        starts = np.flatnonzero(np.concatenate([first, [True]]))
        if self.ties is None:
            ordered = tied_rows.copy()
            sort_segments(ranks, ordered, freeze(starts))
            return freeze(ordered)
        ties = make_contiguous(rows.column(self.ties)).take(pa.array(tied_rows))
        compared = pa.table({"segment": np.cumsum(first), "ties": ties, "rank": ranks})
        keys = [(name, "ascending") for name in compared.column_names]
        sorted_rows: RowIds = tied_rows[np.asarray(pc.sort_indices(compared, sort_keys=keys))]
        return sorted_rows

    def _ranks(self, rows: pa.Table, tied_rows: RowIds) -> Int64Array:
        """Return the last criterion of the order for rows of equal time, by `rank` or their hash: int64[tied_rows]."""
        numbers = pa.array(tied_rows)
        if self.rank is not None:
            return np.array(make_contiguous(rows.column(self.rank)).take(numbers), dtype=np.int64)
        columns = [make_contiguous(rows.column(number)).take(numbers) for number in range(self.width)]
        return np.array(hash_row_contents(columns, tied_rows.size))
