"""What puts rows in order by P-SORT, as all of its tasks know it (`docs/papers.md` 1).

rows ──▶ cells ──┬──▶ slots of whole order keys: process, sort ─────────────────────────────▶ results
                 └──▶ slots of split ones: process, sort ──▶ cells ──▶ slots that merge ────▶ results
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.config import Settings
from sparkext.exchange.partitioning import Partitioning, homes_of
from sparkext.kernels.partition import Int32Array
from sparkext.plans.fragments import Cut
from sparkext.plans.line_rows import LineRows
from sparkext.plans.order_table import LINES, SPLIT, OrderTable, any_table, next_table
from sparkext.reports.stream_batches import OrderedBatch, metrics_name
from sparkext.rows.time_order import TimeOrder
from sparkext.state.nearest_order import NearestOrder
from sparkext.state.stream_state import StoredSide, StreamState
from sparkext.worker.micro_batch import MicroBatch
from sparkext.worker.stream_join import FOLDER
from sparkext.worker.worker_task import MemoryShare, WorkerTask

ROWS, STATES = range(2)
"""The sides of the state: rows that wait for the watermark, and the states of operator keys."""

ORDERED_FIELDS = tuple(told.name for told in fields(OrderedBatch))
"""The fields of the column of progress."""

LINE_FIELDS = (pa.field("order_line", pa.uint16()), pa.field("operator_line", pa.uint16()))
"""Behind the columns of the input."""


@dataclass(frozen=True)
class Operator:
    """What processes the rows of an operator key: `function` takes them in the order of time, as an Arrow table of the
    columns `names`, and returns the result.

    `initial`: an encoded state (`sparkext.state.user_states`); the function takes and returns one more value then. None
    without a state. `pickles`: states are pickles.
    """

    function: Callable[..., Any]
    names: tuple[str, ...]
    initial: bytes | None
    pickles: bool = False


@dataclass(frozen=True)
class TimedOperator:
    """What has something to do when time goes on: keys are the numbers from 0 to before `keys`, in one column, which
    is the order key, too.

    `function` takes the rows of a key, a state as bytes (None: it has none yet), the time up to which everything is
    known, and bytes that the state may have. It yields results, in the order of time and after all that it has yielded
    before, and returns the state, or None if that has not changed. `until`: the time, in µs, at which rows that are no
    stream end.
    """

    function: Callable[..., Any]
    names: tuple[str, ...]
    keys: int
    until: int


@dataclass(frozen=True)
class OrderedRows:
    """What puts the rows of a DataFrame in order.

    `name`, `is_named`, `made_by` and `token` are as in `StreamJoin`.
    `rows` are those of the input, with `LINE_FIELDS` behind them. `order_keys` and `operator_keys` say how lines follow
    from columns; without operator keys, rows are dealt out by what they hold. `key_types` are those in which
    `key_columns` are compared. `order` is that of the input.
    `operator`: what makes results of them, None where they are the rows themselves. `result_schema` is that of results,
    the first columns of the input or others, and `result_order` the order of what is merged.
    `slots`: tasks of each kind. `table`: where rows go, in the first batch of a stream; later ones may have others.
    `splits`: whether an order key may be split. `keeps_late`: whether rows that come late come out, marked.
    """

    name: str
    is_named: bool
    made_by: str
    token: str
    is_stream: bool
    rows: StoredSide
    order_keys: Partitioning
    operator_keys: Partitioning | None
    key_types: tuple[str, ...]
    order: TimeOrder
    operator: Operator | TimedOperator | None
    result_schema: pa.Schema
    result_order: TimeOrder
    slots: int
    table: OrderTable
    splits: bool
    keeps_late: bool
    settings: Settings
    tasks_sharing: int | None

    @property
    def metrics(self) -> str:
        """What its observed metrics are called."""
        return metrics_name(self.name, self.is_named, self.token)

    def lines_of(self, keys: int) -> Int32Array:
        """Return the lines of the keys from 0 to before `keys`: int32[keys]."""
        column = pa.RecordBatch.from_arrays([pa.array(np.arange(keys), pa.int32())], ["key"])
        return replace(self.order_keys, key_columns=(0,)).lines(column)[1]

    @property
    def width(self) -> int:
        """The number of columns of the input."""
        return len(self.rows.rows) - len(LINE_FIELDS)

    @property
    def input_schema(self) -> pa.Schema:
        """The columns of the input, as they are stored."""
        return pa.schema([*self.rows.rows][: self.width])

    @property
    def key_columns(self) -> tuple[int, ...]:
        """The columns that tell operator keys apart: that of one order key is not that of another."""
        operator = () if self.operator_keys is None else self.operator_keys.key_columns
        return tuple(dict.fromkeys([*self.order_keys.key_columns, *operator]))

    @property
    def merged_schema(self) -> pa.Schema:
        """The columns of what is merged: all of the input, or results with a number that orders those of one time."""
        if self.operator is None:
            return self.input_schema
        return self.result_schema.append(pa.field("rank", pa.int64()))

    @property
    def has_states(self) -> bool:
        """Whether operator keys have states."""
        return isinstance(self.operator, TimedOperator) or (
            self.operator is not None and self.operator.initial is not None
        )

    @property
    def states(self) -> StoredSide:
        """How the states of operator keys are stored: by key, of each the last, with the batch that it is of."""
        keys = [self.rows.rows.field(number).with_name(f"k{place}") for place, number in enumerate(self.key_columns)]
        columns = pa.schema([*keys, ("state", pa.binary()), ("batch", pa.timestamp("us"))])
        order = NearestOrder(len(columns), len(columns) - 1, None, tuple(range(len(keys))), last_only=True)
        return StoredSide(columns, order=order)

    @property
    def cut(self) -> Cut:
        """How the state is cut: a fragment for each slot that writes, of either way."""
        writers = (SPLIT + 1 if self.splits else SPLIT) * self.slots
        return Cut(writers, writers, keyed=True)

    def state(self, batch: MicroBatch) -> StreamState:
        """Return the state before a batch.

        Raises
        ------
        StateError
            It is lost, damaged or another operator's.
        """
        folder = batch.checkpoint / FOLDER / self.name
        state = StreamState(folder, ("rows", "states"), batch.number, batch.run, self.cut, self.made_by)
        state.recut(self.cut)
        return state

    def plan(self, state: StreamState | None) -> OrderPlan:
        """Return where the rows of a batch go; without a state, those of a DataFrame that is no stream."""
        if state is None or not state.head:
            return OrderPlan(self.table, 0)
        told = state.head["plan"]
        table = OrderTable.from_data(told["table"])
        if state.cuts.at(state.batch - 1) == self.cut and (self.splits or not table.merged):
            return OrderPlan(table, told["since"])
        counts = LineRows.from_data(told["counts"])
        return OrderPlan(next_table(self.table, counts.orders, counts.operators, self.splits), state.batch)

    def next_plan(self, state: StreamState, plan: OrderPlan) -> dict[str, Any]:
        """Return, as plain data, where the rows of the next batch go, by what came in those before this one."""
        counts = LineRows()
        if state.head:
            writers = range(state.cuts.at(state.batch - 1).left)
            came = [LineRows.from_data(state.told(ROWS, writer)["came"]) for writer in writers]
            counts = LineRows.from_data(state.head["plan"]["counts"]).followed(came)
        way = self.settings.debug_slots
        table = any_table(self.slots, self.splits) if way == "random" else plan.table
        if way == "planned":
            table = next_table(table, counts.orders, counts.operators, self.splits)
        since = plan.since if table == plan.table else state.batch + 1
        return {"table": table.to_data(), "since": since, "counts": counts.to_data()}


@dataclass(frozen=True)
class OrderedTask(WorkerTask):
    """A task of rows that are put in order, with the settings of the operator."""

    ordered: OrderedRows

    @property
    def share(self) -> MemoryShare:
        """The operator's share."""
        return MemoryShare(self.ordered.settings, self.ordered.tasks_sharing)


class Writers:
    """Tells which slot has a row by one table, as a writer of the state: first those of whole lines, then of parts."""

    def __init__(self, slots: int, table: OrderTable) -> None:
        """Spell the table out."""
        self._whole = homes_of(table.whole)
        self._parts = homes_of(table.parts) + np.int32(SPLIT * slots)
        self._is_split = np.zeros(LINES, dtype=np.bool_)
        self._is_split[[*table.merged]] = True

    def of(self, order_lines: Int32Array, operator_lines: Int32Array) -> Int32Array:
        """Return the writer of each row, int32[n], by its lines."""
        found: Int32Array = np.where(self._is_split[order_lines], self._parts[operator_lines], self._whole[order_lines])
        return found


@dataclass(frozen=True)
class OrderPlan:
    """Where rows go in a batch, and the batch since which they do."""

    table: OrderTable
    since: int
