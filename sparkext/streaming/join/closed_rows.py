"""The matched left rows of semi and left joins of two streams.

A left row of a semi join is emitted at its first match. A left row of a left join without a match is emitted when it
expires: when the watermark has passed the time until which right rows may match it. All right rows that may match a
left row are in the same unit. The row numbers of matched rows are stored separately, and expire with the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.plans.shuffle.fragments import LEFT, MATCHED
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.types import conform_columns
from sparkext.streaming.join.description import StreamJoin
from sparkext.streaming.state.expired_rows import find_expired_rows
from sparkext.streaming.state.run_lookup import RunLookup
from sparkext.streaming.state.run_rows import RunRows
from sparkext.streaming.state.segments import SegmentInfo

_NUMBER = 2
"""Index of the row number among the hidden columns: expiry time, bucket, row number."""


class ClosedRows:
    """The match state of one unit's left rows in a batch; `buckets` are the unit's buckets."""

    def __init__(self, join: StreamJoin, lookup: RunLookup, buckets: range, left: list[RunRows]) -> None:
        """Begin; `left` has all stored left rows, including those of this batch."""
        self._join, self._lookup, self._left = join, lookup, left
        self._side = join.sides[LEFT]
        self._earlier_matches = lookup.before(MATCHED, join.matched, buckets)
        self._hidden_schema = pa.schema([self._side.schema.field(column) for column in self._side.hidden])
        self._pairs: list[pa.RecordBatch] = []

    def take(self, pairs: pa.RecordBatch) -> pa.RecordBatch | None:
        """Record pairs of the join. For a left join, return the pairs, which are emitted at once; otherwise None."""
        width, is_semi = len(self._join.output_schema), self._join.how == "semi"
        positions = np.unique(np.asarray(pairs.columns[-1]), return_index=True)[1]
        rows = pairs if is_semi else pairs.select(range(width, width + len(self._hidden_schema)))
        self._pairs.append(rows.take(pa.array(positions)))
        return None if is_semi else pairs.select(range(width))

    def settle_matches(self) -> tuple[pa.Table, pa.RecordBatch | None]:
        """Return the rows that matched for the first time, in the stored schema, and the rows to emit for them."""
        schema = self._pairs[0].schema if self._pairs else self._hidden_schema
        pairs = pa.Table.from_batches(self._pairs, schema)
        numbers = np.asarray(pairs.columns[-1], dtype=np.int64)
        rows = pairs.take(pa.array(np.unique(numbers, return_index=True)[1]))
        new_matches = self._drop_matched(
            rows.select(range(rows.num_columns - len(self._hidden_schema), rows.num_columns))
        )
        stored = pa.Table.from_arrays(
            [new_matches.column(_NUMBER), *new_matches.columns[:_NUMBER]], schema=self._join.matched.schema
        )
        if self._join.how != "semi" or not new_matches.num_rows:
            return stored, None
        is_new = np.isin(np.asarray(rows.columns[-1]), np.asarray(new_matches.column(_NUMBER)))
        out = rows.filter(pa.array(is_new)).select(range(len(self._join.output_schema)))
        return stored, _create_batch(out.columns, self._join.output_schema)

    def info(self, stored: pa.Table) -> SegmentInfo:
        """Return the metadata of the first result of `settle_matches`."""
        return self._join.matched.info(stored)

    def over(self, new_matches: pa.Table, low: int, high: int) -> Iterator[pa.RecordBatch]:
        """Yield the unmatched rows of a left join that expired after `low` and up to `high`.

        `new_matches`: the rows that matched for the first time in this batch. Times are in µs.
        """
        if self._join.how != "left":
            return
        expired = [*find_expired_rows(self._lookup, self._side, self._left, low, high)]
        if not expired:
            return
        rows = pa.Table.from_batches(expired)
        unmatched = np.asarray(self._drop_matched(rows.select(self._side.hidden)).column(_NUMBER), dtype=np.int64)
        unmatched = np.setdiff1d(unmatched, np.asarray(new_matches.column(0), dtype=np.int64))
        unmatched_rows = rows.filter(pa.array(np.isin(np.asarray(rows.column(self._side.number)), unmatched)))
        if unmatched_rows.num_rows:
            schema = self._join.output_schema
            columns = [
                unmatched_rows.column(ref.column)
                if ref.source == PROBE
                else pa.nulls(unmatched_rows.num_rows, field.type)
                for ref, field in zip(self._join.outputs, schema, strict=True)
            ]
            yield _create_batch(columns, schema)

    def _drop_matched(self, rows: pa.Table) -> pa.Table:
        """Remove rows that matched in earlier batches. `rows` has the hidden columns only."""
        keys = (KeyPair(ColumnRef(PROBE, _NUMBER), 0, "int64", False),)
        outputs = tuple(ColumnRef(PROBE, number) for number in range(len(self._hidden_schema)))
        spec = PipelineSpec(len(self._hidden_schema), (JoinSpec("anti", keys, "auto", "unmatched"),), outputs)
        for run in self._earlier_matches:
            if rows.num_rows and run.info.rows:
                rows = pa.Table.from_batches(
                    self._lookup.found(spec, self._hidden_schema, rows, run), self._hidden_schema
                )
        return rows


def _create_batch(columns: Sequence[pa.Array | pa.ChunkedArray], schema: pa.Schema) -> pa.RecordBatch:
    return conform_columns([make_contiguous(column) for column in columns], schema)
