"""Cells: rows that go to one slot, as an Arrow stream in one binary value.

Spark's shuffle carries them as it does any value, beside a number that it brings to the slot's partition, so what it
does about failures, retries and encryption holds for them too. They are compressed by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

CELL_BYTES = 4 << 20
"""Bytes of a cell at most, before compression, unless a row has more."""

COLUMNS = ("slot", "build", "cell")
"""Of rows with cells: a number that Spark brings to the slot's partition, whether it is of the build side, the cell."""

DDL = "slot int, build boolean, cell binary"

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def cell_of(rows: pa.RecordBatch) -> pa.Buffer:
    """Return rows as a cell."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def cell_column(cell: pa.Buffer) -> pa.Array:
    """Return a column of one row, the cell, which lies where it was made."""
    ends = pa.array([0, cell.size], pa.int32()).buffers()[1]
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, ends, cell])


def cell_row(
    names: Sequence[str], kinds: Sequence[pa.DataType], values: Sequence[int], cell: pa.Buffer
) -> pa.RecordBatch:
    """Return one row: values of these kinds, and the cell. `names` are those of all columns."""
    columns = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.RecordBatch.from_arrays([*columns, cell_column(cell)], names=list(names))


def rows_of(cell: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a cell."""
    with pa.ipc.open_stream(cell) as reader:
        yield from reader


def cells_in(batch: pa.RecordBatch) -> Iterator[tuple[bool, pa.Buffer]]:
    """Yield the cells of a batch with `COLUMNS`, and whether each is of the build side, without a copy."""
    _, build, cells = batch.columns
    for number in range(batch.num_rows):
        yield build[number].as_py(), cells[number].as_buffer()
