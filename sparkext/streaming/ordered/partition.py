"""One partition of an ordering.

received rows ─┬─ after the watermark ──▶ wait, in the state
               └─ up to it ──┐
waiting rows ──── up to it ──┴──▶ in order ──▶ operator ──▶ results in order
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from sparkext.build_sides.rows_on_disk import create_row_collector
from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.columns.row_ids import RowIds, count_runs
from sparkext.memory.probes import Tasks
from sparkext.plans.shuffle.fragments import BUCKETS, LEFT
from sparkext.plans.streams.bucket_rows import BucketRows
from sparkext.plans.streams.order_table import BUCKETS as TABLE_BUCKETS
from sparkext.plans.streams.order_table import SPLIT, WHOLE
from sparkext.rows.contiguous import combine_table_chunks, make_contiguous, needs_wide_offsets
from sparkext.rows.morsels import MAX_MORSEL_BYTES, split_by_bytes
from sparkext.rows.times import convert_to_microseconds
from sparkext.shuffle.blocks import read_frames
from sparkext.shuffle.packed_rows import BlockHeader, RowUnpacker
from sparkext.streaming.ordered.description import (
    BUCKET_FIELDS,
    ROWS,
    STATES,
    OperatorInput,
    OrderedRows,
    Writers,
)
from sparkext.streaming.ordered.key_states import KeyStates
from sparkext.streaming.ordered.send_task import LATE
from sparkext.streaming.state.expired_rows import find_expired_rows
from sparkext.streaming.state.micro_batch import MicroBatch
from sparkext.streaming.state.run_lookup import RunLookup
from sparkext.streaming.state.run_rows import RunRows
from sparkext.streaming.state.segments import sum_infos
from sparkext.streaming.state.stream_state import is_expired

_OUT_ROWS = 1 << 16


class ReceivedBlocks:
    """The received blocks of one mode (`WHOLE` or `SPLIT`), decoded. `partitions` is as in `ReceivedRows`."""

    def __init__(self, ordered: OrderedRows, mode: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Read all blocks."""
        self.partitions: Iterable[int] = range(ordered.partitions)
        self.late_rows = 0
        self._late: list[pa.Buffer] = []
        self._late_rows, unpacker = RowUnpacker(ordered.input_schema), RowUnpacker(ordered.rows.sent)
        with create_row_collector() as collected:
            for tag, block in read_frames(batches):
                if tag < 0:
                    self.partitions = [-1 - tag]
                elif tag == LATE and mode == WHOLE:
                    self.late_rows += BlockHeader.of(block).rows
                    if ordered.keeps_late:
                        self._late.append(block)
                elif tag == mode:
                    collected.add((0, 0), unpacker.unpack(block))
            self.rows = collected.table(ordered.rows.sent)

    def late(self) -> Iterator[pa.RecordBatch]:
        """Yield the late rows, if they are to be emitted."""
        return map(self._late_rows.unpack, self._late)


@dataclass(frozen=True)
class RowsInOrder:
    """Rows, and their order as row ids: RowIds[n]."""

    rows: pa.Table
    order: RowIds

    def pieces(self, width: int) -> Iterator[pa.RecordBatch]:
        """Yield the first `width` columns in order, in batches of limited rows and bytes."""
        contiguous = [make_contiguous(column) for column in self.rows.columns[:width]]
        columns = [Column.of(column) for column in contiguous]
        for start in range(0, self.order.size, _OUT_ROWS):
            numbers = self.order[start : start + _OUT_ROWS]
            is_run = count_runs(numbers) == 1
            arrays = [
                # `take` returns 32-bit offsets, which Spark expects.
                array.slice(int(numbers[0]), numbers.size)
                if is_run and not needs_wide_offsets(array)
                else column.take(numbers, False)
                for array, column in zip(contiguous, columns, strict=True)
            ]
            fields = [field.with_type(array.type) for field, array in zip(self.rows.schema, arrays, strict=False)]
            rows = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
            yield from split_by_bytes(rows, MAX_MORSEL_BYTES)


class OrderedPartition:
    """The work of a batch for one partition. Without a `lookup` there is no state, and all rows are due."""

    def __init__(
        self,
        ordered: OrderedRows,
        mode: int,
        number: int,
        received: pa.Table,
        batch: MicroBatch | None,
        lookup: RunLookup | None,
        tasks: Tasks,
    ) -> None:
        """Bind it to the received rows, and to the memory that the task may use."""
        self._ordered, self._mode, self._received, self._lookup, self._tasks = ordered, mode, received, lookup, tasks
        self._writer = mode * ordered.partitions + number
        self._state = None if lookup is None else lookup.state
        self.plan = ordered.plan(self._state)
        self._batch = batch
        self._waiting_rows = ordered.rows.schema.empty_table()
        self.moved = 0

    def results(self) -> RowsInOrder:
        """Return the results in order."""
        ordered = self._ordered
        due = combine_table_chunks(self._due())
        order = ordered.order.order(due)
        if ordered.operator is None:
            return RowsInOrder(due, order)
        until = None if self._batch is None else self._batch.next_watermark()
        operator_input = OperatorInput(
            ordered, due, order, self._states, until, self._writers, self._writer, self._tasks
        )
        schema = ordered.merged_schema.append(BUCKET_FIELDS[0])
        with create_row_collector() as collected:
            for number, rows in enumerate(ordered.operator.results(operator_input)):
                collected.add((0, number), rows)
            results = collected.table(schema)
        return RowsInOrder(results, ordered.result_order.order(results))

    @cached_property
    def _states(self) -> KeyStates:
        batch = 0 if self._batch is None else self._batch.number
        return KeyStates(self._ordered.states, self._ordered.key_types, batch, self._lookup, self._list_runs(STATES))

    def _due(self) -> pa.Table:
        """Return the rows that are due. `stored` writes the other received rows."""
        if self._batch is None:
            return self._received
        high, low = self._batch.next_watermark(), self._batch.watermark()
        is_due = self._read_times(self._received) <= high
        self._waiting_rows = self._received.filter(pa.array(~is_due))
        schema = self._ordered.rows.schema
        parts = [self._received.filter(pa.array(is_due))]
        for run in self._list_runs(ROWS):
            expired = [*find_expired_rows(self._required_lookup, self._ordered.rows, [run], low, high)]
            if expired:
                rows = pa.Table.from_batches(expired, schema)
                parts.append(rows if run.buckets == self._buckets else self._select_own_rows(rows))
        return pa.concat_tables(parts)

    def _read_times(self, rows: pa.Table) -> Int64Array:
        return convert_to_microseconds(make_contiguous(rows.column(self._ordered.order.time)))

    @property
    def bucket_column(self) -> int:
        """The column of the order bucket in the results."""
        return len(self._ordered.merged_schema)

    @property
    def _required_lookup(self) -> RunLookup:
        assert self._lookup is not None, "a batch has a state"
        return self._lookup

    @property
    def _buckets(self) -> range:
        return self._ordered.cut.buckets(LEFT, self._writer)

    def _list_runs(self, side: int) -> list[RunRows]:
        """Return the stored runs that may have rows of this partition.

        These are its own runs since the plan's first batch, and all older runs, which were written under other tables.
        """
        if self._lookup is None:
            return []
        if side == STATES and not self._ordered.has_states:
            return []
        stored = self._ordered.rows if side == ROWS else self._ordered.states
        own_runs = [run for run in self._lookup.before(side, stored, self._buckets) if run.run.first >= self.plan.since]
        if not self.plan.since:  # all runs were written under this table
            return own_runs
        all_runs = self._lookup.before(side, stored, range(BUCKETS))
        return [*(run for run in all_runs if run.run.first < self.plan.since), *own_runs]

    @cached_property
    def _writers(self) -> Writers:
        return Writers(self._ordered.partitions, self.plan.table)

    def _select_own_rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows that the table of this batch assigns to this partition."""
        width = self._ordered.width
        buckets = [np.asarray(make_contiguous(rows.column(width + number)), dtype=np.int32) for number in range(2)]
        is_own = self._writers.of(*buckets) == self._writer
        written_buckets = np.asarray(make_contiguous(rows.column(self._ordered.rows.bucket)), dtype=np.int64)
        self.moved += int(
            (is_own & ((written_buckets < self._buckets.start) | (written_buckets >= self._buckets.stop))).sum()
        )
        return rows.filter(pa.array(is_own))

    def stored(self) -> dict[str, int]:
        """Write the state for the next batch; return the metrics of this one."""
        metrics = {"rows": self._received.num_rows, "moved_rows": self.moved}
        if self._state is None or self._batch is None:
            return metrics
        state, ordered, writers = self._state, self._ordered, self._ordered.cut.left
        low = self._batch.watermark()
        segments = [info for info in state.kept(ROWS, self._writer, writers) if not is_expired(info, low)]
        stored = ordered.rows
        info = stored.info(self._waiting_rows)
        received_rows = self._count_received_rows().to_data()
        if self._writer == 0:
            plan = ordered.next_plan(state, self.plan)
            metrics["tables"] = int(plan["since"] == state.batch + 1)
            segments.append(
                state.store_manifest(stored, self._waiting_rows, info, ordered.cut, plan=plan, received=received_rows)
            )
        else:
            segments.append(state.store(ROWS, self._writer, stored, self._waiting_rows, info, received=received_rows))
        state.merge(ROWS, stored, self._writer, writers, low)
        sides = [ROWS]
        if ordered.has_states:
            states = ordered.states
            segments += state.kept(STATES, self._writer, writers)
            changed = self._states.changed(self._buckets.start)
            segments.append(state.store(STATES, self._writer, states, changed, states.info(changed)))
            state.merge(STATES, states, self._writer, writers, state.batch)
            sides.append(STATES)
        if self._writer == 0:
            for side in sides:
                state.sweep(side, self._batch.retained)
        total = sum_infos(segments)
        return {**metrics, "state_rows": total.rows, "state_bytes": total.bytes, "segments": len(segments)}

    def _count_received_rows(self) -> BucketRows:
        """Count the received rows by bucket."""
        width = self._ordered.width
        orders, operators = (
            np.bincount(np.asarray(make_contiguous(self._received.column(width + number))), minlength=TABLE_BUCKETS)
            for number in range(2)
        )
        return BucketRows(_drop_empty_buckets(orders), _drop_empty_buckets(operators) if self._mode == SPLIT else {})


def _drop_empty_buckets(counts: Int64Array) -> dict[int, int]:
    return {int(bucket): int(counts[bucket]) for bucket in np.flatnonzero(counts)}
