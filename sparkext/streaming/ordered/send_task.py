"""The worker function that sends rows, as blocks (`cell` in the code), to the partitions in which they are ordered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkext.kernels.runtime.jit import frozen
from sparkext.kernels.shuffle.partition import NO_LINE, Int32Array, leading_lines, slot_order
from sparkext.memory.probes import Tasks, process_probe
from sparkext.plans.streams.fragments import LEFT
from sparkext.plans.streams.order_table import LINES, SPLIT, OrderTable
from sparkext.rows.fingerprints import row_hashes
from sparkext.rows.morsels import within_bytes
from sparkext.rows.taken import taken
from sparkext.rows.times import microseconds
from sparkext.rows.types import conformed
from sparkext.shuffle.blocks import CELL_BYTES, cell_of, cell_row
from sparkext.shuffle.outgoing_rows import gathered
from sparkext.streaming.ordered.description import LINE_FIELDS, OrderedRows, OrderedTask, Writers
from sparkext.streaming.state.micro_batch import MicroBatch

DDL = "slot int, kind int, number bigint, cell binary"
"""The columns of blocks: a key that Spark's shuffle maps to the partition (`slot`), the kind of the row, a number, and
the block. The kinds are `WHOLE`, `SPLIT`, `LATE` and `SLOT`. The number is the partition's index or, for `LATE`, the
number of late rows."""

LATE, SLOT = SPLIT + 1, SPLIT + 2

_NO_CELL = pa.py_buffer(b"")
_COLUMNS = ("slot", "kind", "number", "cell")
_KINDS = (pa.int32(), pa.int32(), pa.int64())


@dataclass(frozen=True)
class OrderedCellsTask(OrderedTask):
    """Emits rows in blocks. `slot_keys[i]`: a key that Spark's shuffle maps to partition i."""

    slot_keys: tuple[int, ...]

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Send the rows of one Spark partition."""
        ordered = self.ordered
        batch = MicroBatch.of_this_task() if ordered.is_stream else None
        table = ordered.plan(None if batch is None else ordered.state(batch)).table
        sending = _Sending(ordered, table, self.slot_keys, None if batch is None else batch.watermark())
        probe = process_probe()
        for slot, key in enumerate(self.slot_keys):
            yield _row(key, SLOT, slot, _NO_CELL)
        for rows in gathered(batches, ordered.cut.left, lambda: probe.headroom(tasks)):
            yield from sending.cells(conformed(rows.columns, ordered.input_schema))


class _Sending:
    """Sends rows by one table. Rows up to the `watermark` (µs) are late; without one (None), no row is late."""

    def __init__(
        self, ordered: OrderedRows, table: OrderTable, slot_keys: tuple[int, ...], watermark: int | None
    ) -> None:
        self._ordered, self._slot_keys, self._watermark = ordered, slot_keys, watermark
        self._writers = Writers(ordered.slots, table)
        cut = ordered.cut
        self._lines = np.fromiter((cut.lines(LEFT, writer).start for writer in range(cut.left)), np.uint16)
        self._homes = frozen(np.arange(cut.left, dtype=np.int32))

    def cells(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield rows as blocks, each for one partition."""
        ordered = self._ordered
        lines = ordered.order_keys.lines(rows)[1]
        parts = self._operator_lines(rows)
        writers = self._writers.of(lines, parts)
        if self._watermark is not None:
            late = microseconds(rows.column(ordered.order.time)) <= self._watermark
            writers = np.where(late, np.int32(NO_LINE), writers)
            if late.any():
                yield from self._late(rows.filter(pa.array(late)))
        order = slot_order(frozen(writers), self._homes, self._homes.size, None)
        for field, numbers in zip(LINE_FIELDS, (lines, parts), strict=True):
            rows = rows.append_column(field, pa.array(numbers.astype(np.uint16)))
        stored = ordered.rows.stored(taken(rows, order.rows))
        in_order = stored.append_column("line", pa.array(self._lines[writers[order.rows]]))
        for writer, (at, stop) in enumerate(zip(order.starts[:-1].tolist(), order.starts[1:].tolist(), strict=True)):
            if at < stop:
                way, slot = divmod(writer, ordered.slots)
                for piece in within_bytes(in_order.slice(at, stop - at), CELL_BYTES):
                    yield _row(self._slot_keys[slot], way, slot, cell_of(piece))

    def _operator_lines(self, rows: pa.RecordBatch) -> Int32Array:
        keys = self._ordered.operator_keys
        if keys is not None:
            return keys.lines(rows)[1]
        return leading_lines(row_hashes(rows.columns, rows.num_rows), LINES)

    def _late(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not self._ordered.keeps_late:
            yield _row(self._slot_keys[0], LATE, rows.num_rows, _NO_CELL)
            return
        for piece in within_bytes(rows, CELL_BYTES):
            yield _row(self._slot_keys[0], LATE, piece.num_rows, cell_of(piece))


def _row(key: int, kind: int, number: int, cell: pa.Buffer) -> pa.RecordBatch:
    return cell_row(_COLUMNS, _KINDS, (key, kind, number), cell)
