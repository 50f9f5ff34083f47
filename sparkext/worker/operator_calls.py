"""Calls a user's function with the rows of one operator key after the other, and with the state of each.

    rows in order ──▶ by operator key ──▶ function(rows, state) ──▶ results, and what the state is now

Rows of a key come in the order of time, in as many calls as it takes. A result has to happen while the rows of its call
do, or it would come out before what happens earlier.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.errors import OperatorError
from sparkext.kernels.group_table import GroupTable
from sparkext.kernels.jit import frozen
from sparkext.kernels.partition import slot_order
from sparkext.kernels.row_ids import RowIds
from sparkext.plans.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.rows.contiguous import contiguous
from sparkext.rows.fingerprints import row_hashes
from sparkext.rows.times import microseconds
from sparkext.rows.types import conform
from sparkext.state.run_rows import RunRows
from sparkext.worker.ordered_rows import OrderedRows
from sparkext.worker.run_lookup import RunLookup

_AT_ONCE = 1 << 17
"""Rows that are put in the order of keys together; a call has no more of them."""


class OperatorCalls:
    """Calls the operator of one slot. `batch` is the number of this one; it counts as a time of the states."""

    def __init__(self, ordered: OrderedRows, batch: int) -> None:
        """Bind it."""
        assert ordered.operator is not None, "there is something to call"
        self._ordered, self._operator, self._batch = ordered, ordered.operator, batch
        self._keys: list[pa.Array] = []
        self._after: list[bytes | None] = []

    def results(
        self, rows: pa.Table, order: RowIds, lookup: RunLookup | None, known: Sequence[RunRows]
    ) -> Iterator[pa.RecordBatch]:
        """Yield what the function makes of rows, with a number behind it that its operator key has, and its order line.

        `order`: of `rows`, that of time. `known`: runs of states.
        """
        columns = [contiguous(column) for column in rows.columns]
        keys = [columns[number].take(pa.array(order)) for number in self._ordered.key_columns]
        groups = GroupTable([key.type for key in keys], self._ordered.settings.debug_hash_mask)
        numbers = groups.numbers(keys)
        homes = frozen(np.arange(groups.count, dtype=np.int32))
        by_group = slot_order(numbers, homes, groups.count, None)
        in_order = order[by_group.rows]
        starts = by_group.starts
        distinct = groups.keys(0, groups.count)
        ranks = row_hashes(distinct, groups.count)
        lines = np.asarray(columns[self._ordered.width])[in_order[starts[:-1]]]
        states = self._states(distinct, lookup, known)
        given = [columns[number] for number in range(len(self._operator.names))]
        first = 0
        while first < groups.count:
            # As many groups as there is room for, or part of one.
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + _AT_ONCE, side="right")) - 1)
            for at in range(int(starts[first]), int(starts[last]), _AT_ONCE):
                stop = min(at + _AT_ONCE, int(starts[last]))
                taken = pa.array(in_order[at:stop])
                piece = pa.Table.from_arrays([column.take(taken) for column in given], names=list(self._operator.names))
                for group in range(first, last):
                    low, high = max(int(starts[group]), at), min(int(starts[group + 1]), stop)
                    if low < high:
                        made = self._called(piece.slice(low - at, high - low), states, group)
                        of_key = [pa.array(np.full(made.num_rows, number[group])) for number in (ranks, lines)]
                        made = made.append_column("rank", of_key[0]).append_column("order_line", of_key[1])
                        yield from made.to_batches()
            first = last
        if self._operator.initial is not None:
            self._keys, self._after = distinct, states

    def _called(self, rows: pa.Table, states: list[bytes | None], group: int) -> pa.Table:
        """Return what one call makes of rows, and keep the state that it leaves."""
        if self._operator.initial is None:
            return self._checked(self._operator.function(rows), rows)
        before = states[group]
        answer = self._operator.function(rows, pickle.loads(self._operator.initial if before is None else before))
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise OperatorError(f"apply returned {type(answer).__name__}: with a state, it has to return (rows, state)")
        from pyspark import cloudpickle

        states[group] = None if answer[1] is None else cloudpickle.dumps(answer[1])
        return self._checked(answer[0], rows)

    def _checked(self, made: Any, rows: pa.Table) -> pa.Table:
        """Return a result in the types of the schema, or say what is wrong with it."""
        schema, time = self._ordered.result_schema, self._ordered.result_order.time
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            raise OperatorError(f"apply returned {type(made).__name__}, and not an Arrow table")
        missing = [name for name in schema.names if name not in made.column_names]
        if missing:
            raise OperatorError(
                f"apply returned columns {', '.join(made.column_names) or 'none'}: schema has {', '.join(missing)}, too"
            )
        try:
            columns = [_cast(contiguous(made.column(field.name)), field.type) for field in schema]
        except pa.ArrowException as error:
            raise OperatorError(f"apply returned columns that are not of the types of schema: {error}") from error
        made = pa.Table.from_arrays(columns, schema=schema)
        if made.num_rows:
            times = microseconds(columns[time])
            own = microseconds(contiguous(rows.column(self._ordered.order.time)))
            if (np.diff(times) < 0).any() or times[0] < own[0] or times[-1] > own[-1]:
                raise OperatorError(
                    f"apply returned rows whose {schema.names[time]} goes from {made.column(time)[0]} to"
                    f" {made.column(time)[-1]}, made of rows from {rows.column(self._ordered.order.time)[0]} to"
                    f" {rows.column(self._ordered.order.time)[-1]}: they have to lie between these, in order"
                )
        return made

    def _states(self, keys: list[pa.Array], lookup: RunLookup | None, known: Sequence[RunRows]) -> list[bytes | None]:
        """Return the pickled state of each key, the last that there is, None for a new one."""
        count = len(keys[0])
        states: list[bytes | None] = [None] * count
        if lookup is None or not known or not count:
            return states
        stored = self._ordered.states
        probe = pa.Table.from_arrays(
            [*keys, pa.array(np.arange(count))], names=[*(f"k{n}" for n in range(len(keys))), "number"]
        )
        pairs = tuple(KeyPair(ColumnRef(PROBE, n), n, kind, True) for n, kind in enumerate(self._ordered.key_types))
        outputs = (
            ColumnRef(PROBE, len(keys)),
            ColumnRef(PROBE + 1, len(keys)),
            ColumnRef(PROBE + 1, len(keys) + 1),
        )
        spec = PipelineSpec(len(keys) + 1, (JoinSpec("inner", pairs, "auto", "states"),), outputs)
        found = pa.schema([("number", pa.int64()), *(stored.rows.field(len(keys) + n) for n in range(2))])
        last = np.full(count, -1, np.int64)
        for run in known:
            if run.info.rows:
                for batch in lookup.found(spec, found, probe, run):
                    of_batch = microseconds(batch.column(2))
                    for place, number in enumerate(batch.column(0).to_pylist()):
                        if of_batch[place] > last[number]:
                            last[number] = of_batch[place]
                            states[number] = batch.column(1)[place].as_py()
        return states

    def changed(self, line: int) -> pa.Table:
        """Return the states as they are stored now, on behalf of a line."""
        schema = self._ordered.states.schema
        if not self._keys:
            return schema.empty_table()
        count = len(self._after)
        batch = pa.array([self._batch] * count, pa.int64()).cast(pa.timestamp("us"))
        columns = [*self._keys, pa.array(self._after, pa.binary()), batch, pa.array([line] * count, pa.uint16())]
        columns = [conform(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as a type that holds all of its values."""
    return conform(column if pa.types.is_nested(kind) or column.type == kind else column.cast(kind), kind)
