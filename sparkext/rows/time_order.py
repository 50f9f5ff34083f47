"""Rows in the order of time, the same one in whichever order they came.

Rows of one time are in the order of a column that users name, if there is one, and else of what they hold, or of a
number that is given to them; what is alike then is alike in all columns, or already in its order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.jit import frozen
from sparkext.kernels.merge_runs import merge_runs
from sparkext.kernels.radix_sort import sort_segments, sort_words
from sparkext.kernels.row_ids import RowIds, row_id_dtype
from sparkext.rows.contiguous import contiguous
from sparkext.rows.fingerprints import row_hashes
from sparkext.rows.times import microseconds


@dataclass(frozen=True)
class TimeOrder:
    """Rows of `width` columns: column `time` tells when they happened, `ties` orders those of one time, if it is given.

    `rank`: a column of int64 that orders those that are left; None: what they hold does.
    """

    width: int
    time: int
    ties: int | None = None
    rank: int | None = None

    def order(self, rows: pa.Table, starts: Int64Array | None = None) -> RowIds:
        """Return the numbers of rows in order: RowIds[n].

        `starts`: they are runs that are in order each, run i from `starts[i]` to before `starts[i + 1]`.
        """
        times = frozen(microseconds(contiguous(rows.column(self.time))))
        if starts is None:
            words, order = sort_words(times, frozen(np.arange(times.size, dtype=row_id_dtype(times.size))))
        else:
            words, order = merge_runs(times, starts)
        same = words[1:] == words[:-1]
        if not same.any():
            return order
        tied = np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))
        taken = order[tied]
        first = np.concatenate([[True], words[tied][1:] != words[tied][:-1]])
        ordered = order.copy()
        ordered[tied] = self._in_order(rows, taken, first)
        return frozen(ordered)

    def _in_order(self, rows: pa.Table, taken: RowIds, first: np.ndarray) -> RowIds:
        """Order some rows of `rows` within segments; `first` says of each whether a segment begins with it."""
        ranks = self._ranks(rows, taken)
        starts = np.flatnonzero(np.concatenate([first, [True]]))
        if self.ties is None:
            ordered = taken.copy()
            sort_segments(ranks, ordered, frozen(starts))
            return frozen(ordered)
        ties = contiguous(rows.column(self.ties)).take(pa.array(taken))
        compared = pa.table({"segment": np.cumsum(first), "ties": ties, "rank": ranks})
        keys = [(name, "ascending") for name in compared.column_names]
        found: RowIds = taken[np.asarray(pc.sort_indices(compared, sort_keys=keys))]
        return found

    def _ranks(self, rows: pa.Table, taken: RowIds) -> Int64Array:
        """Return what orders rows that no column does, int64[taken]."""
        numbers = pa.array(taken)
        if self.rank is not None:
            return np.array(contiguous(rows.column(self.rank)).take(numbers), dtype=np.int64)
        columns = [contiguous(rows.column(number)).take(numbers) for number in range(self.width)]
        return np.array(row_hashes(columns, taken.size))
