"""Calls a user's function for each operator key, with the rows and the state of this key.

    rows in order ──▶ by operator key ──▶ function(rows, state) ──▶ results, and the new state

The rows of a key are passed in time order, in one or more calls. The times of results must be within the time range of
the call's rows; otherwise they would be emitted out of order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.errors import OperatorError
from sparkext.kernels.columns.row_ids import RowIds
from sparkext.kernels.groups.group_table import GroupTable
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.partition import order_by_partition
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.fingerprints import hash_row_contents
from sparkext.rows.taken import select_rows
from sparkext.rows.times import convert_to_microseconds
from sparkext.rows.types import conform
from sparkext.streaming.ordered.description import KeyedOperator, OrderedRows
from sparkext.streaming.ordered.key_states import KeyStates
from sparkext.streaming.state.run_lookup import RunLookup
from sparkext.streaming.state.run_rows import RunRows
from sparkext.streaming.state.user_states import FORMS, UnstorableStateError, decode_state, encode_state

_AT_ONCE = 1 << 17
"""Rows that are sorted by key together; also the maximum number of rows per call."""


class OperatorCalls(KeyStates):
    """Calls the operator of one partition."""

    def __init__(self, ordered: OrderedRows, operator: KeyedOperator, batch: int) -> None:
        """Bind the operator."""
        super().__init__(ordered, batch)
        self._operator = operator

    def results(
        self, rows: pa.Table, order: RowIds, lookup: RunLookup | None, known: Sequence[RunRows]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the function's results with two more columns: the rank of the operator key, and its order bucket.

        `order`: the time order of `rows`. `known`: the stored runs of states.
        """
        columns = [make_contiguous(column) for column in rows.columns]
        keys = [columns[number].take(pa.array(order)) for number in self._ordered.key_columns]
        groups = GroupTable([key.type for key in keys], self._ordered.settings.debug_hash_mask)
        numbers = groups.numbers(keys)
        homes = freeze(np.arange(groups.count, dtype=np.int32))
        by_group = order_by_partition(numbers, homes, groups.count, None)
        in_order = order[by_group.rows]
        starts = by_group.starts
        distinct = groups.keys(0, groups.count)
        ranks = hash_row_contents(distinct, groups.count)
        buckets = np.asarray(columns[self._ordered.width])[in_order[starts[:-1]]]
        states = self._states(distinct, lookup, known)
        names = list(self._operator.names)
        given = pa.Table.from_arrays(columns[: len(names)], names=names)
        first = 0
        while first < groups.count:
            # As many groups as fit into `_AT_ONCE` rows, but at least one group, in several pieces if it is larger.
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + _AT_ONCE, side="right")) - 1)
            for at in range(int(starts[first]), int(starts[last]), _AT_ONCE):
                stop = min(at + _AT_ONCE, int(starts[last]))
                piece = select_rows(given, in_order[at:stop])
                for group in range(first, last):
                    low, high = max(int(starts[group]), at), min(int(starts[group + 1]), stop)
                    if low < high:
                        made = self._called(piece.slice(low - at, high - low), states, group)
                        of_key = [pa.array(np.full(made.num_rows, number[group])) for number in (ranks, buckets)]
                        made = made.append_column("rank", of_key[0]).append_column("order_bucket", of_key[1])
                        yield from made.to_batches()
            first = last
        if self._operator.initial is not None:
            self._keys, self._after = distinct, states

    def _called(self, rows: pa.Table, states: list[bytes | None], group: int) -> pa.Table:
        """Return the result of one call, and store the new state."""
        operator, before = self._operator, states[group]
        if operator.initial is None:
            return self._checked(operator.function(rows), rows)
        answer = operator.function(rows, decode_state(before or operator.initial, operator.pickles))
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise OperatorError(f"apply returned {type(answer).__name__}: with a state, it must return (rows, state)")
        try:
            states[group] = None if answer[1] is None else encode_state(answer[1], operator.pickles)
        except UnstorableStateError as error:
            raise OperatorError(f"apply returned a state that cannot be stored, {error}. Expected {FORMS}") from error
        return self._checked(answer[0], rows)

    def _checked(self, made: Any, rows: pa.Table) -> pa.Table:
        """Return a result cast to the types of the schema, or raise an OperatorError that describes the problem."""
        schema, time = self._ordered.result_schema, self._ordered.result_order.time
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            raise OperatorError(f"apply returned {type(made).__name__}, expected an Arrow table")
        missing = [name for name in schema.names if name not in made.column_names]
        if missing:
            raise OperatorError(
                f"apply returned columns {', '.join(made.column_names) or 'none'}, but schema also has"
                f" {', '.join(missing)}"
            )
        try:
            columns = [_cast(make_contiguous(made.column(field.name)), field.type) for field in schema]
        except pa.ArrowException as error:
            raise OperatorError(f"apply returned columns that do not have the types of schema: {error}") from error
        made = pa.Table.from_arrays(columns, schema=schema)
        if made.num_rows:
            times = convert_to_microseconds(columns[time])
            own = convert_to_microseconds(make_contiguous(rows.column(self._ordered.order.time)))
            if (np.diff(times) < 0).any() or times[0] < own[0] or times[-1] > own[-1]:
                raise OperatorError(
                    f"apply returned rows whose {schema.names[time]} goes from {made.column(time)[0]} to"
                    f" {made.column(time)[-1]}, for input from {rows.column(self._ordered.order.time)[0]} to"
                    f" {rows.column(self._ordered.order.time)[-1]}: the times must be in order, and within the input's"
                )
        return made


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column cast to a type, without loss of values."""
    return conform(column if pa.types.is_nested(kind) or column.type == kind else column.cast(kind), kind)
