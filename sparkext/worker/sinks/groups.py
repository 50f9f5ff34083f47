"""Groups of rows, with what Spark's partial aggregates keep of each: Spark's final aggregate merges them.

    rows ──▶ keys ──────▶ table of groups ──▶ number of each row's group
      └────▶ arguments ──────────────────────▶ accumulators, an element a group
                                                      │
    when all rows are in, or memory is short:         ▼
                            keys of groups │ buffers, in pieces of a budget ──▶ to the JVM

As a group may leave more than once, nothing has to be kept: where memory is short, all groups leave and the table
starts over; where a first sample of rows hardly shares groups, each row leaves as a group of its own, and no table is
searched for it; and while rows come clustered by their keys, groups leave when there are a good many, as all but the
last ones are finished: they never take more memory than a cache. Groups that are asked for whole all stay, or do not
fit.

Rows may be grouped several times, as for ROLLUP. Each time has its own table and accumulators, and a table has no
constants: that of ROLLUP's grand total is none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Lock

import numpy as np
import pyarrow as pa

from sparkext.build_sides.file import WAYS_OUT
from sparkext.errors import BuildSideTooLargeError, ConditionError, SchemaMismatchError
from sparkext.kernels.accumulators import Accumulator, AccumulatorOverflowError, accumulator
from sparkext.kernels.group_table import GroupTable
from sparkext.kernels.growing import Int32Array
from sparkext.kernels.hashing import FULL_MASK
from sparkext.kernels.jit import frozen
from sparkext.plans.aggregates import AggregateCall, Aggregation
from sparkext.plans.expression import Expression
from sparkext.plans.operator_budget import OperatorBudget
from sparkext.plans.output_size import FINAL_OUTPUT_COPIES
from sparkext.plans.spec import ColumnRef
from sparkext.rows.arrow_evaluator import ExpressionError, columns, told_values
from sparkext.rows.row_set import RowSet
from sparkext.rows.types import arrow_key_type, conform
from sparkext.rows.vectors import arrow_of, constant

_VALUE_BYTES = 8.0
LEAST_BYTES = 1 << 20
"""Groups that take no more stay, however little memory there is."""
SAMPLE_ROWS = 1 << 17
"""After so many rows it is judged whether they share groups."""
_SHARED = 0.9
"""Rows that have more groups than this share of their number are not worth a table."""
CLUSTERED_GROUPS = 1 << 15
"""So many groups of clustered rows leave together. 6 M rows of 1.5 M groups, a count and an average: 53 ms, and at most
0.6 MB between morsels; 66 ms and 77 MB where all stay."""
_CUT_RUNS = 2
"""The first and the last run of a piece may belong to groups that other pieces have brought."""


class Groups:
    """Emits record batches of keys and buffers, which `schema` declares: the groups of each of `aggregations`.

    Raises
    ------
    BuildSideTooLargeError
        Groups that are asked for whole take more memory than there is.
    ConditionError
        A value cannot be computed, or a sum of integers overflows.
    SchemaMismatchError
        A column is not what was declared.
    """

    copies = FINAL_OUTPUT_COPIES

    def __init__(self, aggregations: Sequence[Aggregation], schema: pa.Schema, hash_mask: int = FULL_MASK) -> None:
        """Start without groups."""
        self._schema = schema
        self._numbered = [*chain.from_iterable(one.expressions() for one in aggregations)]
        self._expressions = list(dict.fromkeys(self._numbered))
        places = (node for expression in self._expressions for node in expression.columns())
        self._columns = [ColumnRef(node.source, node.column) for node in places]
        self.row_bytes = _VALUE_BYTES * max(1, len(self._expressions))
        self._turn = Lock()
        self._whole = any(one.whole for one in aggregations)
        self._groupings = [_Grouping(one, hash_mask) for one in aggregations]

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Enter these rows; emit groups where memory is short, or groups are not shared."""
        start = 0
        while start < rows.length:
            most = budget.next()
            started = time.perf_counter()
            piece = rows.next_piece(start, most.rows, self._columns, most.bytes)
            start += piece.length
            values = self._computed(piece)
            with self._turn:
                leaving = self._entered(values, piece.length, budget)
            budget.observe(piece.length, 0)
            budget.spent_since(started)
            for held in leaving:
                yield from self._emitted(held, budget)

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Emit all groups that are there. Without keys there is one, also of no row."""
        for grouping in self._groupings:
            yield from self._emitted(grouping.held, budget)

    def _computed(self, rows: RowSet) -> dict[Expression, pa.Array]:
        try:
            return dict(zip(self._expressions, columns(self._expressions, rows), strict=True))
        except ExpressionError as error:
            failed = self._expressions[error.expression]
            number, values = self._numbered.index(failed), told_values(failed, rows, error.row)
            raise ConditionError(f"expression {number} of the groups fails on {values}") from error

    def _entered(self, values: dict[Expression, pa.Array], rows: int, budget: OperatorBudget) -> list[_Held]:
        """Enter a piece's rows; return groups that are to leave."""
        try:
            leaving = [*chain.from_iterable(grouping.entered(values, rows) for grouping in self._groupings)]
        except AccumulatorOverflowError as error:
            raise ConditionError("a sum of integers overflows in a group") from error
        held = sum(grouping.held.nbytes for grouping in self._groupings)
        # A table that grows needs as much again.
        if held > max(LEAST_BYTES, budget.usable_bytes()):
            if self._whole:
                raise BuildSideTooLargeError(
                    f"the groups of the build side do not fit in memory: the first"
                    f" {sum(grouping.held.count for grouping in self._groupings):,} take {held:,} bytes, and"
                    f" {int(budget.usable_bytes()):,} may be planned with. {WAYS_OUT}"
                )
            leaving += [grouping.taken() for grouping in self._groupings]
        return leaving

    def _emitted(self, held: _Held, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        start, count = 0, held.count
        while start < count:
            stop = min(start + budget.next().rows, count)
            started = time.perf_counter()
            batch = self._batch(held.states(start, stop))
            budget.observe(0, batch.num_rows, batch.nbytes)
            budget.spent_since(started)
            start = stop
            yield batch

    def _batch(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        if len(arrays) != len(self._schema):
            raise SchemaMismatchError(f"{len(self._schema)} columns are declared, the groups have {len(arrays)}")
        try:
            conformed = [conform(array, field.type) for array, field in zip(arrays, self._schema, strict=True)]
        except pa.ArrowException as error:
            declared = {field.name: str(field.type) for field in self._schema}
            given = [str(array.type) for array in arrays]
            raise SchemaMismatchError(
                f"columns are declared as {declared}, the groups have {given}: {error}"
            ) from error
        return pa.RecordBatch.from_arrays(conformed, names=self._schema.names)


class _Grouping:
    """One aggregation of the rows: what is held of it, whether rows share groups, and whether they come clustered."""

    def __init__(self, aggregation: Aggregation, hash_mask: int) -> None:
        self.aggregation = aggregation
        self._varying = [key for key in aggregation.keys if key.op != "literal"]
        self._hash_mask = hash_mask
        self._sampled = 0
        self._passes = False
        self._leaves_early = bool(self._varying) and not aggregation.whole
        self._clustered = self._leaves_early
        self.held = self._empty()

    def entered(self, values: dict[Expression, pa.Array], rows: int) -> list[_Held]:
        """Enter a piece's rows; return groups that are to leave."""
        if self._passes:
            own = self._empty()
            own.enter(values, rows, shared=False)
            return [own]
        known = self.held.count
        numbers = self.held.enter(values, rows, shared=True)
        if self._leaves_early and self._sampled < SAMPLE_ROWS:
            self._sampled += rows
            self._passes = self._sampled >= SAMPLE_ROWS and self.held.count > _SHARED * self._sampled
        if self._clustered:
            assert numbers is not None, "there are keys"
            self._clustered = _runs(numbers) <= self.held.count - known + _CUT_RUNS
        finished = self._clustered and self.held.count >= CLUSTERED_GROUPS
        return [self.taken()] if self._passes or finished else []

    def taken(self) -> _Held:
        """Return all groups, and start over."""
        full, self.held = self.held, self._empty()
        return full

    def _empty(self) -> _Held:
        table = GroupTable([_arrow_type(key) for key in self._varying], self._hash_mask) if self._varying else None
        return _Held(self.aggregation, self._varying, table, [_accumulator(call) for call in self.aggregation.calls])


@dataclass
class _Held:
    """Groups, and what is kept of each. Without a `table`, as no key is `varying`, there is one group at most."""

    aggregation: Aggregation
    varying: Sequence[Expression]
    table: GroupTable | None
    accumulators: Sequence[Accumulator]
    passed: Sequence[pa.Array] = ()
    rows: int = 0

    @property
    def count(self) -> int:
        if self.passed:
            return self.rows
        if self.table is None:
            return 1 if self.rows or not self.aggregation.keys else 0
        return self.table.count

    @property
    def nbytes(self) -> int:
        table = 0 if self.table is None else self.table.nbytes
        return table + sum(one.nbytes for one in self.accumulators)

    def enter(self, values: dict[Expression, pa.Array], rows: int, shared: bool) -> Int32Array | None:
        """Enter rows, unless they may be `shared` each as a group of its own; return their groups if there are keys."""
        numbers: Int32Array | None = None
        groups = 1
        self.rows += rows
        if self.table is not None:
            keys = [values[key] for key in self.varying]
            if shared:
                numbers = self.table.numbers(keys)
                groups = self.table.count
            else:
                numbers = frozen(np.arange(rows, dtype=np.int32))
                groups, self.passed = rows, [_normalised(key) for key in keys]
        for call, one in zip(self.aggregation.calls, self.accumulators, strict=True):
            one.add(numbers, groups, None if call.argument is None else values[call.argument], rows)
        return numbers

    def states(self, start: int, stop: int) -> list[pa.Array]:
        """Return the columns of groups `start` to `stop`."""
        if self.passed:
            found = iter([key.slice(start, stop - start) for key in self.passed])
        else:
            found = iter([] if self.table is None else self.table.keys(start, stop))
        keys = [_constant(key, stop - start) if key.op == "literal" else next(found) for key in self.aggregation.keys]
        return [*keys, *(state for one in self.accumulators for state in one.states(start, stop))]


def _runs(numbers: Int32Array) -> int:
    """Return how often rows in a row change their group, and once more for the first."""
    return 1 + int(np.count_nonzero(numbers[1:] != numbers[:-1]))


def _accumulator(call: AggregateCall) -> Accumulator:
    value_type = None if call.argument is None else _arrow_type(call.argument)
    return accumulator(call.function, value_type, checked=call.checked, ignore_nulls=call.ignore_nulls)


def _constant(key: Expression, length: int) -> pa.Array:
    assert key.type is not None, "literals have types"
    return _normalised(arrow_of(constant(key.text, key.type), key.type, length))


def _normalised(key: pa.Array) -> pa.Array:
    """Return keys as a table emits them: floats have one zero and one NaN."""
    if not pa.types.is_floating(key.type):
        return key
    values = key.fill_null(0).to_numpy(zero_copy_only=False) + 0.0
    values[np.isnan(values)] = np.nan
    return pa.array(values, key.type, mask=key.is_null().to_numpy(zero_copy_only=False) if key.null_count else None)


def _arrow_type(expression: Expression) -> pa.DataType:
    assert expression.type is not None, "group columns and arguments have types"
    return arrow_key_type(expression.type)
