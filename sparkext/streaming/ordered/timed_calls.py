"""Calls an operator for each of its keys once per batch, also without new rows, as time advances.

rows in order ──▶ by key ──▶ function(rows, state, until, room) ──▶ results, and the new state
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.columns.row_ids import RowIds
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.partition import Int32Array, order_by_partition
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.taken import select_rows
from sparkext.streaming.ordered.description import BUCKET_FIELDS, OrderedRows, TimedOperator
from sparkext.streaming.ordered.key_states import KeyStates
from sparkext.streaming.state.run_lookup import RunLookup
from sparkext.streaming.state.run_rows import RunRows


class TimedCalls(KeyStates):
    """Calls the operator of one partition.

    `until`: the time, in µs, up to which the input is complete. `room`: the maximum size of a state in bytes.
    """

    def __init__(
        self,
        ordered: OrderedRows,
        operator: TimedOperator,
        batch: int,
        own: Int64Array,
        buckets: Int32Array,
        until: int,
        room: int,
    ) -> None:
        """Bind the operator; `own` are the keys of this partition in ascending order, `buckets` their buckets."""
        super().__init__(ordered, batch)
        self._operator, self._own, self._buckets, self._until, self._room = operator, own, buckets, until, room

    def results(
        self, rows: pa.Table, order: RowIds, lookup: RunLookup | None, known: Sequence[RunRows]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the function's results, see `OperatorCalls`. Here the rank is the operator key itself."""
        (place,) = self._ordered.key_columns
        key_type = rows.schema.types[place]
        keys = np.asarray(make_contiguous(rows.column(place)).take(pa.array(order)), dtype=np.int64)
        homes = freeze(np.arange(self._own.size, dtype=np.int32))
        numbers = freeze(np.searchsorted(self._own, keys).astype(np.int32))
        by_key = order_by_partition(numbers, homes, homes.size, None)
        in_order = order[by_key.rows]
        distinct = [pa.array(self._own, key_type)]
        states = self._states(distinct, lookup, known)
        columns = [make_contiguous(column) for column in rows.columns[: len(self._operator.names)]]
        own = pa.Table.from_arrays(columns, names=list(self._operator.names))
        changed: list[int] = []
        for number in range(self._own.size):
            given = select_rows(own, in_order[by_key.starts[number] : by_key.starts[number + 1]])
            calls = self._operator.function(given, states[number], self._until, self._room)
            state = yield from self._numbered(calls, number)
            if state is not None:
                states[number] = state
                changed.append(number)
        self._keys = [keys.take(pa.array(changed, pa.int64())) for keys in distinct]
        self._after = [states[number] for number in changed]

    def _numbered(
        self, calls: Generator[pa.Table, None, bytes | None], number: int
    ) -> Generator[pa.RecordBatch, None, bytes | None]:
        """Yield results with two more columns, their key and its bucket; return the new state of the key."""
        while True:
            try:
                made = next(calls)
            except StopIteration as ended:
                state: bytes | None = ended.value
                return state
            for field, value in (("rank", self._own[number]), (BUCKET_FIELDS[0], np.uint16(self._buckets[number]))):
                made = made.append_column(field, pa.array(np.full(made.num_rows, value)))
            yield from made.to_batches()
