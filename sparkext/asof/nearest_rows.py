"""The results of an as-of join of two streams: for each expired left row, the nearest right row.

For each left row, every stored run of the right side yields one candidate, as in an as-of join with a table. The
nearest candidate is the result. Candidates of equal time are ordered as rows within a run are
(`sparkext.streaming.state.nearest_order`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.plans.pipeline.spec import PROBE
from sparkext.plans.shuffle.fragments import LEFT, RIGHT
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.times import convert_to_microseconds
from sparkext.rows.types import conform_columns
from sparkext.streaming.join.description import StreamJoin
from sparkext.streaming.state.expired_rows import find_expired_rows
from sparkext.streaming.state.run_lookup import RunLookup
from sparkext.streaming.state.run_rows import RunRows
from sparkext.streaming.state.stream_state import is_expired

_MISSING = -(1 << 63)


class NearestRows:
    """Finds the nearest rows for one unit. `left` and `right` are all runs of both sides, including this batch."""

    def __init__(self, join: StreamJoin, lookup: RunLookup, left: list[RunRows], right: list[RunRows]) -> None:
        """Bind the runs of both sides."""
        self._join, self._lookup, self._left, self._right = join, lookup, left, right
        self._spec = join.specs[0]
        [step] = self._spec.joins
        order = join.sides[RIGHT].order
        assert step.as_of is not None and order is not None, "as it is an as-of join"
        self._as_of = step.as_of
        self._order = order
        self._candidate_schema = join.sides[RIGHT].rows.append(pa.field("place", pa.int64()))

    def find_expired(self, low: int, high: int) -> Iterator[pa.RecordBatch]:
        """Yield the results of left rows that expire after `low` and up to `high`, both in µs."""
        rows = self._join.settings.morsel_max_rows
        for batch in find_expired_rows(self._lookup, self._join.sides[LEFT], self._left, low, high):
            for start in range(0, batch.num_rows, rows):
                joined = self._join_batch(batch.slice(start, rows), low)
                if joined.num_rows:
                    yield joined

    def _join_batch(self, left: pa.RecordBatch, low: int) -> pa.RecordBatch:
        """Return left rows with the nearest right row of all runs. Runs that expired by `low` are skipped."""
        probe = pa.Table.from_batches([left.append_column("place", pa.array(np.arange(left.num_rows)))])
        candidates = pa.Table.from_batches(
            [
                batch
                for run in self._right
                if not is_expired(run.info, low)
                for batch in self._lookup.found(self._spec, self._candidate_schema, probe, run)
            ],
            self._candidate_schema,
        )
        nearest = self._find_nearest(left, candidates)
        if self._join.how == "inner":
            matches = np.flatnonzero(nearest >= 0)
            left, nearest = left.take(pa.array(matches)), nearest[matches]
        indexes = pa.array(nearest, mask=nearest < 0)
        columns = [
            left.column(ref.column)
            if ref.source == PROBE
            else make_contiguous(candidates.column(ref.column)).take(indexes)
            for ref in self._join.outputs
        ]
        return conform_columns(columns, self._join.output_schema)

    def _find_nearest(self, left: pa.RecordBatch, candidates: pa.Table) -> Int64Array:
        """Return the index of each left row's nearest candidate, -1 if there is none: int64[rows]."""
        nearest = np.full(left.num_rows, -1, np.int64)
        positions = np.asarray(candidates.column(len(self._candidate_schema) - 1), dtype=np.int64)
        right_times = convert_to_microseconds(make_contiguous(candidates.column(self._as_of.build)), _MISSING)
        left_times = convert_to_microseconds(left.column(self._as_of.probe.column), _MISSING)[positions]
        ranks = np.empty(len(positions), np.int64)
        ranks[self._order.order(candidates)] = np.arange(len(positions))
        # Among rows with equal time, backward takes the last and forward the first. Among equally distant rows,
        # `nearest` takes the earlier one.
        backward = self._as_of.direction == "backward"
        is_before = (
            right_times <= left_times if self._as_of.direction == "nearest" else np.full(len(left_times), backward)
        )
        order = np.lexsort(
            (np.where(is_before, -ranks, ranks), np.logical_not(is_before), np.abs(left_times - right_times), positions)
        )
        matched, first = np.unique(positions[order], return_index=True)
        nearest[matched] = order[first]
        return nearest
