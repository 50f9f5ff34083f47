"""A sink of groups, with the buffers of Spark's partial aggregates. Spark's final aggregate merges them.

    rows ──▶ keys ──────▶ table of groups ──▶ group index of each row
      └────▶ arguments ──────────────────────▶ accumulators, one element per group
                                                      │
    when all rows are in, or memory is short:         ▼
                            keys of groups │ buffers, in pieces of a budget ──▶ to the JVM

As a group may be emitted several times, groups need not stay in memory:

- if memory is short, all groups are emitted and the table starts over;
- if a first sample of rows hardly shares groups, each row is emitted as its own group, without a table;
- while rows are clustered by their keys, all groups are emitted whenever there are `CLUSTERED_GROUPS`, which fit into
  the CPU caches. All but the last groups are complete.

If an aggregation requires complete groups (`whole`), all groups stay in memory, or the sink fails.

Rows may have several groupings, for example for ROLLUP. Each grouping has its own table and accumulators. Constant keys
are not part of a table: the grand total of ROLLUP has no table.
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
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.sinks.pieces import emit_pieces, split_input
from sparkext.errors import BuildSideTooLargeError, ConditionError, SchemaMismatchError
from sparkext.expressions.arrow_evaluator import ExpressionError, columns, serialise_failing_values
from sparkext.expressions.vectors import convert_to_arrow, make_constant
from sparkext.kernels.columns.buffers import Int32Array
from sparkext.kernels.groups.accumulators import Accumulator, AccumulatorOverflowError, accumulator
from sparkext.kernels.groups.group_table import GroupTable
from sparkext.kernels.keys.hashing import FULL_MASK
from sparkext.kernels.runtime.jit import freeze
from sparkext.plans.adaptive.output_size import FINAL_OUTPUT_COPIES, Budget
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.pipeline.aggregates import AggregateCall, Aggregation
from sparkext.plans.pipeline.spec import ColumnRef
from sparkext.rows.row_set import RowSet
from sparkext.rows.types import arrow_key_type, conform

_VALUE_BYTES = 8.0
LEAST_BYTES = 1 << 20
"""Groups up to this size stay in memory, however little is free."""
SAMPLE_ROWS = 1 << 17
"""Number of rows after which the sink decides whether rows share groups."""
_SHARED = 0.9
"""If the number of groups exceeds this fraction of the rows, a table does not pay off."""
CLUSTERED_GROUPS = 1 << 15
"""Number of clustered groups that are emitted together. Measured with 6 M rows in 1.5 M groups, a count and an average:
53 ms, and at most 0.6 MB between morsels; without early emission 66 ms and 77 MB."""
_CUT_RUNS = 2
"""The first and the last run of a piece may belong to groups of other pieces."""


class Groups:
    """Emits record batches of keys and buffers, with the declared types in `schema`, for each of `aggregations`.

    Raises
    ------
    BuildSideTooLargeError
        Groups that have to be complete (`whole`) do not fit in memory.
    ConditionError
        A value cannot be computed, or a sum of integers overflows.
    SchemaMismatchError
        A column does not have the declared type.
    """

    copies = FINAL_OUTPUT_COPIES

    def __init__(self, aggregations: Sequence[Aggregation], schema: pa.Schema, hash_mask: int = FULL_MASK) -> None:
        """Begin without groups."""
        self._schema = schema
        self._numbered = [*chain.from_iterable(aggregation.expressions() for aggregation in aggregations)]
        self._expressions = list(dict.fromkeys(self._numbered))
        column_nodes = (node for expression in self._expressions for node in expression.columns())
        self._columns = [ColumnRef(node.source, node.column) for node in column_nodes]
        self.row_bytes = _VALUE_BYTES * max(1, len(self._expressions))
        self._turn = Lock()
        self._requires_complete_groups = any(aggregation.whole for aggregation in aggregations)
        self._groupings = [_Grouping(aggregation, hash_mask) for aggregation in aggregations]

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Add these rows; emit groups if memory is short, or if they are not worth keeping."""
        for piece, _ in split_input(rows, self._columns, budget):
            started = time.perf_counter()
            values = self._compute_arguments(piece)
            with self._turn:
                outgoing = self._add_rows(values, piece.length, budget)
            budget.observe(piece.length, 0)
            budget.add_time_since(started)
            for groups in outgoing:
                yield from self._emit(groups, budget)

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        """Emit all remaining groups. Without keys there is one group, even without rows."""
        for grouping in self._groupings:
            yield from self._emit(grouping.held, budget)

    def _compute_arguments(self, rows: RowSet) -> dict[Expression, pa.Array]:
        try:
            return dict(zip(self._expressions, columns(self._expressions, rows), strict=True))
        except ExpressionError as error:
            failed = self._expressions[error.expression]
            number, values = self._numbered.index(failed), serialise_failing_values(failed, rows, error.row)
            raise ConditionError(f"expression {number} of the groups fails on {values}") from error

    def _add_rows(self, values: dict[Expression, pa.Array], rows: int, budget: OperatorBudget) -> list[_HeldGroups]:
        """Add the rows of a piece; return the groups to emit."""
        try:
            outgoing = [*chain.from_iterable(grouping.add_rows(values, rows) for grouping in self._groupings)]
        except AccumulatorOverflowError as error:
            raise ConditionError("a sum of integers overflows in a group") from error
        held_bytes = sum(grouping.held.nbytes for grouping in self._groupings)
        # A growing table temporarily needs twice its size.
        if held_bytes > max(LEAST_BYTES, budget.usable_bytes()):
            if self._requires_complete_groups:
                raise BuildSideTooLargeError(
                    f"the groups of the build side do not fit in memory: the first"
                    f" {sum(grouping.held.count for grouping in self._groupings):,} take {held_bytes:,} bytes, but only"
                    f" {int(budget.usable_bytes()):,} are available. {WAYS_OUT}"
                )
            outgoing += [grouping.taken() for grouping in self._groupings]
        return outgoing

    def _emit(self, groups: _HeldGroups, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        def create_piece(start: int, most: Budget) -> pa.RecordBatch:
            return self._batch(groups.states(start, min(start + most.rows, groups.count)))

        return emit_pieces(groups.count, create_piece, budget)

    def _batch(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        if len(arrays) != len(self._schema):
            raise SchemaMismatchError(f"the groups have {len(arrays)} columns, expected {len(self._schema)}")
        try:
            conformed = [conform(array, field.type) for array, field in zip(arrays, self._schema, strict=True)]
        except pa.ArrowException as error:
            declared = {field.name: str(field.type) for field in self._schema}
            types = [str(array.type) for array in arrays]
            raise SchemaMismatchError(
                f"the groups have columns of types {types}, expected {declared}: {error}"
            ) from error
        return pa.RecordBatch.from_arrays(conformed, names=self._schema.names)


class _Grouping:
    """The state of one aggregation: its groups, whether rows share groups, and whether rows are clustered."""

    def __init__(self, aggregation: Aggregation, hash_mask: int) -> None:
        self.aggregation = aggregation
        self._varying = [key for key in aggregation.keys if key.op != "literal"]
        self._hash_mask = hash_mask
        self._sampled = 0
        self._passes = False
        self._leaves_early = bool(self._varying) and not aggregation.whole
        self._clustered = self._leaves_early
        self.held = self._empty()

    def add_rows(self, values: dict[Expression, pa.Array], rows: int) -> list[_HeldGroups]:
        """Add the rows of a piece; return the groups to emit."""
        if self._passes:
            single_row_groups = self._empty()
            single_row_groups.enter(values, rows, shared=False)
            return [single_row_groups]
        count_before = self.held.count
        numbers = self.held.enter(values, rows, shared=True)
        if self._leaves_early and self._sampled < SAMPLE_ROWS:
            self._sampled += rows
            self._passes = self._sampled >= SAMPLE_ROWS and self.held.count > _SHARED * self._sampled
        if self._clustered:
            assert numbers is not None, "there are keys"
            self._clustered = _count_equal_runs(numbers) <= self.held.count - count_before + _CUT_RUNS
        finished = self._clustered and self.held.count >= CLUSTERED_GROUPS
        return [self.taken()] if self._passes or finished else []

    def taken(self) -> _HeldGroups:
        """Return all groups, and start over without groups."""
        full, self.held = self.held, self._empty()
        return full

    def _empty(self) -> _HeldGroups:
        table = GroupTable([_arrow_type(key) for key in self._varying], self._hash_mask) if self._varying else None
        return _HeldGroups(
            self.aggregation, self._varying, table, [_create_accumulator(call) for call in self.aggregation.calls]
        )


@dataclass
class _HeldGroups:
    """Groups and their accumulators. Without `varying` keys there is no `table`, and at most one group."""

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
        return table + sum(aggregate.nbytes for aggregate in self.accumulators)

    def enter(self, values: dict[Expression, pa.Array], rows: int, shared: bool) -> Int32Array | None:
        """Add rows, and return their group indexes, None without keys. Unless `shared`, each row is its own group."""
        numbers: Int32Array | None = None
        groups = 1
        self.rows += rows
        if self.table is not None:
            keys = [values[key] for key in self.varying]
            if shared:
                numbers = self.table.numbers(keys)
                groups = self.table.count
            else:
                numbers = freeze(np.arange(rows, dtype=np.int32))
                groups, self.passed = rows, [_normalise_floats(key) for key in keys]
        for call, aggregate in zip(self.aggregation.calls, self.accumulators, strict=True):
            aggregate.add(numbers, groups, None if call.argument is None else values[call.argument], rows)
        return numbers

    def states(self, start: int, stop: int) -> list[pa.Array]:
        """Return the key and state columns of groups `start` to `stop`."""
        if self.passed:
            table_keys = iter([key.slice(start, stop - start) for key in self.passed])
        else:
            table_keys = iter([] if self.table is None else self.table.keys(start, stop))
        keys = [
            _repeat_literal(key, stop - start) if key.op == "literal" else next(table_keys)
            for key in self.aggregation.keys
        ]
        return [*keys, *(state for aggregate in self.accumulators for state in aggregate.states(start, stop))]


def _count_equal_runs(numbers: Int32Array) -> int:
    """Return the number of runs of equal consecutive values."""
    return 1 + int(np.count_nonzero(numbers[1:] != numbers[:-1]))


def _create_accumulator(call: AggregateCall) -> Accumulator:
    value_type = None if call.argument is None else _arrow_type(call.argument)
    return accumulator(call.function, value_type, checked=call.checked, ignore_nulls=call.ignore_nulls)


def _repeat_literal(key: Expression, length: int) -> pa.Array:
    assert key.type is not None, "literals have types"
    return _normalise_floats(convert_to_arrow(make_constant(key.text, key.type), key.type, length))


def _normalise_floats(key: pa.Array) -> pa.Array:
    """Return keys in the form that a table emits: floats have a single zero and a single NaN."""
    if not pa.types.is_floating(key.type):
        return key
    values = key.fill_null(0).to_numpy(zero_copy_only=False) + 0.0
    values[np.isnan(values)] = np.nan
    return pa.array(values, key.type, mask=key.is_null().to_numpy(zero_copy_only=False) if key.null_count else None)


def _arrow_type(expression: Expression) -> pa.DataType:
    assert expression.type is not None, "group columns and arguments have types"
    return arrow_key_type(expression.type)
