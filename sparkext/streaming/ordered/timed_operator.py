"""Calls an operator for each of its keys once per batch, also without new rows, as time advances.

rows in order ──▶ by key ──▶ function(rows, state, until, max_bytes) ──▶ results, and the new state
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.partition import order_by_partition
from sparkext.memory.probes import process_probe
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.taken import select_rows
from sparkext.streaming.ordered.description import OperatorInput, append_key

_MOST_BYTES = 1 << 36
"""Maximum size of an operator's state: the address range is reserved, but unused pages are never touched."""


@dataclass(frozen=True)
class TimedOperator:
    """Calls `function` with an Arrow table of the user's columns, also without new rows, as time advances.

    Its keys are the integers from 0 to `keys` - 1. They are stored in one column, which is also the order key.

    `function` receives the rows of a key, its state as bytes (None before the first state), the time up to which the
    input is complete, and the maximum size of the state in bytes. It yields results in time order, none of them earlier
    than the results of earlier calls. It returns the new state, or None if the state has not changed. `until`: the end
    of the time range in µs, if the rows are not a stream.
    """

    function: Callable[..., Generator[pa.Table, None, bytes | None]]
    keys: int
    until: int
    has_states: ClassVar[bool] = True

    def results(self, operator_input: OperatorInput) -> Iterator[pa.RecordBatch]:
        """Yield the function's results. The rank of a key is the key itself."""
        ordered, order = operator_input.ordered, operator_input.order
        buckets = ordered.buckets_of(self.keys)
        own_keys = np.flatnonzero(operator_input.writers.of(buckets, buckets) == operator_input.writer)
        (key_column,) = ordered.key_columns
        key_type = operator_input.rows.schema.types[key_column]
        keys = np.asarray(make_contiguous(operator_input.rows.column(key_column)).take(pa.array(order)), dtype=np.int64)
        homes = freeze(np.arange(own_keys.size, dtype=np.int32))
        numbers = freeze(np.searchsorted(own_keys, keys).astype(np.int32))
        by_key = order_by_partition(numbers, homes, homes.size, None)
        in_order = order[by_key.rows]
        states = operator_input.states.load([pa.array(own_keys, key_type)])
        rows = operator_input.select_user_columns()
        until = self.until if operator_input.until is None else operator_input.until
        headroom = process_probe().headroom(operator_input.tasks)
        max_bytes = _MOST_BYTES if headroom is None else min(headroom.bytes // 2, _MOST_BYTES)
        changed_indexes: list[int] = []
        for number, key in enumerate(own_keys):
            key_rows = select_rows(rows, in_order[by_key.starts[number] : by_key.starts[number + 1]])
            calls = self.function(key_rows, states[number], until, max_bytes)
            state = yield from _append_to_each(calls, key, np.uint16(buckets[key]))
            if state is not None:
                states[number] = state
                changed_indexes.append(number)
        operator_input.states.change(
            [pa.array(own_keys[changed_indexes], key_type)], [states[number] for number in changed_indexes]
        )


def _append_to_each(
    calls: Generator[pa.Table, None, bytes | None], key: np.int64, bucket: np.uint16
) -> Generator[pa.RecordBatch, None, bytes | None]:
    """Yield the results of a key, see `append_key`; return the new state of the key."""
    while True:
        try:
            results = next(calls)
        except StopIteration as stop:
            state: bytes | None = stop.value
            return state
        yield from append_key(results, key, bucket).to_batches()
