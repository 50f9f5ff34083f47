"""Blocks: rows for one partition, as an Arrow stream in one binary value.

Spark's shuffle transports a block as an ordinary column value, next to a key that it maps to the partition. Its
handling of failures, retries and encryption therefore applies to blocks, too. Arrow compresses the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

BLOCK_BYTES = 4 << 20
"""Maximum size of a block in bytes before compression, unless a single row is larger."""

COLUMNS = ("partition", "build", "block")
"""The columns of blocks: a key that Spark's shuffle maps to the partition, whether rows are build rows, the block."""

DDL = "partition int, build boolean, block binary"

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def block_of(rows: pa.RecordBatch) -> pa.Buffer:
    """Return rows as a block."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def block_column(block: pa.Buffer) -> pa.Array:
    """Return a column of one row with the block, without a copy."""
    ends = pa.array([0, block.size], pa.int32()).buffers()[1]
    return pa.BinaryArray.from_buffers(pa.binary(), 1, [None, ends, block])


def block_row(
    names: Sequence[str], kinds: Sequence[pa.DataType], values: Sequence[int], block: pa.Buffer
) -> pa.RecordBatch:
    """Return one row: the values with these types, and the block. `names` are the names of all columns."""
    columns = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.RecordBatch.from_arrays([*columns, block_column(block)], names=list(names))


def rows_of(block: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a block."""
    with pa.ipc.open_stream(block) as reader:
        yield from reader


def blocks_in(batch: pa.RecordBatch) -> Iterator[tuple[bool, pa.Buffer]]:
    """Yield whether a block has build rows, and the block, not copied, for each row of a batch with `COLUMNS`."""
    _, build, blocks = batch.columns
    for number in range(batch.num_rows):
        yield build[number].as_py(), blocks[number].as_buffer()
