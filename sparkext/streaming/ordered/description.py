"""The description of an ordering by P-SORT (`docs/papers.md` 1), which all of its tasks receive.

rows ──▶ blocks ──┬──▶ partitions of whole order keys: process, sort ──────────────────────────────────▶ results
                  └──▶ partitions of split order keys: process, sort ──▶ blocks ──▶ merging partitions ─▶ results
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from sparkext.engine.worker_task import MemoryShare, WorkerTask
from sparkext.kernels.columns.buffers import Int32Array
from sparkext.kernels.columns.row_ids import RowIds
from sparkext.memory.probes import Tasks
from sparkext.plans.shuffle.fragments import GridShape
from sparkext.plans.streams.bucket_rows import BucketRows
from sparkext.plans.streams.order_table import BUCKETS, SPLIT, OrderTable, draw_order_table, plan_next_table
from sparkext.reports.stream_batches import OrderedBatch
from sparkext.rows.contiguous import make_contiguous
from sparkext.rows.time_order import TimeOrder
from sparkext.shuffle.partitioning import Partitioning, homes_of
from sparkext.streaming.ordered.key_states import KeyStates
from sparkext.streaming.state.micro_batch import MicroBatch
from sparkext.streaming.state.nearest_order import NearestOrder
from sparkext.streaming.state.stream_state import StoredSide, StreamState
from sparkext.streaming.stream_operator import StreamOperator

ROWS, STATES = range(2)
"""The sides of the state: rows that wait for the watermark, and the states of operator keys."""

ORDERED_FIELDS = tuple(counter.name for counter in fields(OrderedBatch))
"""The fields of the progress column."""

BUCKET_FIELDS = (pa.field("order_bucket", pa.uint16()), pa.field("operator_bucket", pa.uint16()))
"""Columns appended to the input: the buckets of the order key and of the operator key."""


class KeyedOperator(Protocol):
    """Computes results from the rows and the state of each operator key."""

    @property
    def keys(self) -> int | None:
        """The number of operator keys if they are the integers from 0, in one column that is also the order key."""

    @property
    def has_states(self) -> bool:
        """Whether operator keys have states."""

    def results(self, operator_input: OperatorInput) -> Iterator[pa.RecordBatch]:
        """Yield the results of all keys, each with its key (see `append_key`), and change the states."""


@dataclass(frozen=True)
class OperatorInput:
    """The rows that an operator processes in a batch of one partition.

    - `rows`, `order`: rows of all keys, and their order.
    - `states`: the states of operator keys.
    - `until`: the time in µs up to which the input is complete; None if the rows are not a stream.
    - `writers`, `writer`: maps buckets to the partitions of the state, and this partition.
    - `tasks`: the tasks that share the memory.
    """

    ordered: OrderedRows
    rows: pa.Table
    order: RowIds
    states: KeyStates
    until: int | None
    writers: Writers
    writer: int
    tasks: Tasks

    def select_user_columns(self) -> pa.Table:
        """Return the rows with the user's columns only, each in one chunk."""
        names = [*self.ordered.user_columns]
        columns = [make_contiguous(column) for column in self.rows.columns[: len(names)]]
        return pa.Table.from_arrays(columns, names=names)


def append_key(results: pa.Table, rank: np.int64, bucket: np.uint16) -> pa.Table:
    """Return the results of an operator key with two more columns: the rank of the key, and its order bucket."""
    for name, value in (("rank", rank), (BUCKET_FIELDS[0].name, bucket)):
        results = results.append_column(name, pa.array(np.full(results.num_rows, value)))
    return results


@dataclass(frozen=True)
class OrderedRows(StreamOperator):
    """The ordering of a DataFrame's rows.

    - `rows`: the columns of the input, followed by `BUCKET_FIELDS`.
    - `order_keys`, `operator_keys`: the columns that determine the buckets. Without operator keys, the fingerprint of a
      row determines its operator bucket.
    - `key_types`: the types in which `key_columns` are compared.
    - `user_columns`: the names of the user's columns, the first of the input.
    - `order`: the order of the input.
    - `operator`: computes the results; None if the results are the input rows.
    - `result_schema`: the columns of the results, which are the first columns of the input unless there is an operator.
    - `result_order`: the order in which results are merged.
    - `table`: the routing table of a stream's first batch; later batches may have other tables.
    - `splits`: whether order keys may be split.
    - `keeps_late`: whether late rows are emitted, with a mark.
    """

    is_stream: bool
    rows: StoredSide
    order_keys: Partitioning
    operator_keys: Partitioning | None
    key_types: tuple[str, ...]
    user_columns: tuple[str, ...]
    order: TimeOrder
    operator: KeyedOperator | None
    result_schema: pa.Schema
    result_order: TimeOrder
    table: OrderTable
    splits: bool
    keeps_late: bool

    def buckets_of(self, keys: int) -> Int32Array:
        """Return the buckets of the keys from 0 to `keys` - 1: int32[keys]."""
        column = pa.RecordBatch.from_arrays([pa.array(np.arange(keys), pa.int32())], ["key"])
        return replace(self.order_keys, key_columns=(0,)).buckets(column)[1]

    @property
    def width(self) -> int:
        """The number of input columns."""
        return len(self.rows.rows) - len(BUCKET_FIELDS)

    @property
    def input_schema(self) -> pa.Schema:
        """The stored types of the input columns."""
        return pa.schema([*self.rows.rows][: self.width])

    @property
    def key_columns(self) -> tuple[int, ...]:
        """The columns that identify an operator key: states are kept separately for each order key."""
        operator = () if self.operator_keys is None else self.operator_keys.key_columns
        return tuple(dict.fromkeys([*self.order_keys.key_columns, *operator]))

    @property
    def merged_schema(self) -> pa.Schema:
        """The columns of rows to merge: the input, or results followed by a rank that orders equal times."""
        if self.operator is None:
            return self.input_schema
        return self.result_schema.append(pa.field("rank", pa.int64()))

    @property
    def has_states(self) -> bool:
        """Whether operator keys have states."""
        return self.operator is not None and self.operator.has_states

    @property
    def states(self) -> StoredSide:
        """The stored form of operator states: one row per key, its latest state and the batch that wrote it."""
        keys = [
            self.rows.rows.field(number).with_name(f"k{position}") for position, number in enumerate(self.key_columns)
        ]
        columns = pa.schema([*keys, ("state", pa.binary()), ("batch", pa.timestamp("us"))])
        order = NearestOrder(len(columns), len(columns) - 1, None, tuple(range(len(keys))), last_only=True)
        return StoredSide(columns, order=order)

    @property
    def cut(self) -> GridShape:
        """The partitioning of the state: one fragment for each writing task, whole and split partitions alike."""
        writers = (SPLIT + 1 if self.splits else SPLIT) * self.partitions
        return GridShape(writers, writers, keyed=True)

    def state(self, batch: MicroBatch) -> StreamState:
        """Return the state before a batch.

        Raises
        ------
        StateError
            The state is missing, damaged or belongs to another operator.
        """
        folder = batch.state_folder(self.name)
        state = StreamState(folder, ("rows", "states"), batch.number, batch.run, self.cut, self.made_by)
        state.change_partitioning(self.cut)
        return state

    def plan(self, state: StreamState | None) -> OrderPlan:
        """Return the routing plan of a batch. The first batch, and rows that are not a stream, use the first table."""
        if state is None or not state.head:
            return OrderPlan(self.table, 0)
        stored_plan = state.head["plan"]
        table = OrderTable.from_data(stored_plan["table"])
        if state.cuts.at(state.batch - 1) == self.cut and (self.splits or not table.merged):
            return OrderPlan(table, stored_plan["since"])
        counts = BucketRows.from_data(stored_plan["counts"])
        return OrderPlan(plan_next_table(self.table, counts.orders, counts.operators, self.splits), state.batch)

    def next_plan(self, state: StreamState, plan: OrderPlan) -> dict[str, Any]:
        """Return the next batch's routing plan as plain data, derived from the rows of all batches before this one."""
        counts = BucketRows()
        if state.head:
            writers = range(state.cuts.at(state.batch - 1).left)
            received_rows = [
                BucketRows.from_data(state.read_previous_metadata(ROWS, writer)["received"]) for writer in writers
            ]
            counts = BucketRows.from_data(state.head["plan"]["counts"]).derive_next(received_rows)
        policy = self.settings.debug_partitions
        table = draw_order_table(self.partitions, self.splits) if policy == "random" else plan.table
        if policy == "planned":
            table = plan_next_table(table, counts.orders, counts.operators, self.splits)
        since = plan.since if table == plan.table else state.batch + 1
        return {"table": table.to_data(), "since": since, "counts": counts.to_data()}


@dataclass(frozen=True)
class OrderedTask(WorkerTask):
    """A task of an ordering, with the settings of the operator."""

    ordered: OrderedRows

    @property
    def share(self) -> MemoryShare:
        """The memory share of the operator."""
        return self.ordered.share


class Writers:
    """Maps rows to writers, the fragments of the state, by one routing table.

    The writers of whole partitions precede the writers of split partitions.
    """

    def __init__(self, partitions: int, table: OrderTable) -> None:
        """Expand the table into arrays."""
        self._whole_writers = homes_of(table.whole)
        self._split_writers = homes_of(table.parts) + np.int32(SPLIT * partitions)
        self._is_split = np.zeros(BUCKETS, dtype=np.bool_)
        self._is_split[[*table.merged]] = True

    def of(self, order_buckets: Int32Array, operator_buckets: Int32Array) -> Int32Array:
        """Return the writer of each row, int32[n], from its two buckets."""
        writers: Int32Array = np.where(
            self._is_split[order_buckets], self._split_writers[operator_buckets], self._whole_writers[order_buckets]
        )
        return writers


@dataclass(frozen=True)
class OrderPlan:
    """The routing table of a batch, and the first batch that uses it."""

    table: OrderTable
    since: int
