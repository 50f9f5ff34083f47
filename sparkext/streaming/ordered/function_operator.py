"""Calls a user's function for each operator key, with the rows and the state of this key.

    rows in order ──▶ by operator key ──▶ function(rows, state) ──▶ results, and the new state

The rows of a key are passed in time order, in one or more calls. The times of results must be within the time range of
the call's rows; otherwise they would be emitted out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sparkext.errors import OperatorError
from sparkext.kernels.groups.group_table import GroupTable
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.partition import order_by_partition
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.fingerprints import hash_row_contents
from sparkext.rows.taken import select_rows
from sparkext.rows.times import convert_to_microseconds
from sparkext.rows.types import conform
from sparkext.streaming.ordered.description import OperatorInput, OrderedRows, append_key
from sparkext.streaming.state.user_states import FORMS, UnstorableStateError, decode_state, encode_state

_AT_ONCE = 1 << 17
"""Rows that are sorted by key together; also the maximum number of rows per call."""


@dataclass(frozen=True)
class FunctionOperator:
    """Calls `function` with an Arrow table of the user's columns, which returns a table of results.

    `initial`: the encoded initial state (see `streaming.state.user_states`). If given, the function also receives and
    returns a state; None for a stateless operator. `pickles`: whether states are pickled.
    """

    function: Callable[..., Any]
    initial: bytes | None
    pickles: bool = False
    keys: ClassVar[int | None] = None

    @property
    def has_states(self) -> bool:
        """Whether the function has an initial state."""
        return self.initial is not None

    def results(self, operator_input: OperatorInput) -> Iterator[pa.RecordBatch]:
        """Yield the function's results. The rank of a key is a hash of it."""
        ordered, order = operator_input.ordered, operator_input.order
        keys = [
            make_contiguous(operator_input.rows.column(number)).take(pa.array(order)) for number in ordered.key_columns
        ]
        groups = GroupTable([key.type for key in keys], ordered.settings.debug_hash_mask)
        numbers = groups.numbers(keys)
        homes = freeze(np.arange(groups.count, dtype=np.int32))
        by_group = order_by_partition(numbers, homes, groups.count, None)
        in_order = order[by_group.rows]
        starts = by_group.starts
        distinct = groups.keys(0, groups.count)
        ranks = hash_row_contents(distinct, groups.count)
        buckets = np.asarray(make_contiguous(operator_input.rows.column(ordered.width)))[in_order[starts[:-1]]]
        states = operator_input.states.load(distinct)
        rows = operator_input.select_user_columns()
        first = 0
        while first < groups.count:
            # As many groups as fit into `_AT_ONCE` rows, but at least one group, in several pieces if it is larger.
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + _AT_ONCE, side="right")) - 1)
            for at in range(int(starts[first]), int(starts[last]), _AT_ONCE):
                stop = min(at + _AT_ONCE, int(starts[last]))
                piece = select_rows(rows, in_order[at:stop])
                for group in range(first, last):
                    low, high = max(int(starts[group]), at), min(int(starts[group + 1]), stop)
                    if low < high:
                        group_rows = piece.slice(low - at, high - low)
                        result, states[group] = self._call(group_rows, states[group])
                        result = _check_result(result, group_rows, ordered)
                        yield from append_key(result, ranks[group], buckets[group]).to_batches()
            first = last
        if self.has_states:
            operator_input.states.change(distinct, states)

    def _call(self, rows: pa.Table, state: bytes | None) -> tuple[Any, bytes | None]:
        """Return the result of one call, and the new state."""
        if self.initial is None:
            return self.function(rows), None
        answer = self.function(rows, decode_state(state or self.initial, self.pickles))
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise OperatorError(f"apply returned {type(answer).__name__}: with a state, it must return (rows, state)")
        try:
            return answer[0], None if answer[1] is None else encode_state(answer[1], self.pickles)
        except UnstorableStateError as error:
            raise OperatorError(f"apply returned a state that cannot be stored, {error}. Expected {FORMS}") from error


def _check_result(result: Any, rows: pa.Table, ordered: OrderedRows) -> pa.Table:
    """Return a result cast to the types of the schema, or raise an OperatorError that describes the problem."""
    schema, time = ordered.result_schema, ordered.result_order.time
    if isinstance(result, pa.RecordBatch):
        result = pa.Table.from_batches([result])
    if not isinstance(result, pa.Table):
        raise OperatorError(f"apply returned {type(result).__name__}, expected an Arrow table")
    missing = [name for name in schema.names if name not in result.column_names]
    if missing:
        raise OperatorError(
            f"apply returned columns {', '.join(result.column_names) or 'none'}, but schema also has"
            f" {', '.join(missing)}"
        )
    try:
        columns = [_cast(make_contiguous(result.column(field.name)), field.type) for field in schema]
    except pa.ArrowException as error:
        raise OperatorError(f"apply returned columns that do not have the types of schema: {error}") from error
    result = pa.Table.from_arrays(columns, schema=schema)
    if result.num_rows:
        input_column = rows.column(ordered.order.time)
        times, input_times = (
            convert_to_microseconds(columns[time]),
            convert_to_microseconds(make_contiguous(input_column)),
        )
        if (np.diff(times) < 0).any() or times[0] < input_times[0] or times[-1] > input_times[-1]:
            raise OperatorError(
                f"apply returned rows whose {schema.names[time]} goes from {result.column(time)[0]} to"
                f" {result.column(time)[-1]}, for input from {input_column[0]} to {input_column[-1]}: the times must be"
                " in order, and within the input's"
            )
    return result


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column cast to a type, without loss of values."""
    return conform(column if pa.types.is_nested(kind) or column.type == kind else column.cast(kind), kind)
