"""A build side as a file: every column one contiguous Arrow array, ready to be mapped and gathered from.

Spark sends batches of many rows, whereas joins gather arbitrary rows; a column in many chunks would cost a search per
row. Columns are therefore made contiguous once, while they are written, buffer by buffer and chunk by chunk. This needs
no memory in addition to the chunks. Only nested columns and other rare types are first combined in memory.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, Any

import numpy as np
import pyarrow as pa

from sparkext.config import BUILD_SIDE_MAX_BYTES
from sparkext.errors import BuildSideTooLargeError
from sparkext.kernels.columns.buffers import is_var, view_raw_var_bytes
from sparkext.kernels.runtime.jit import AnyArray
from sparkext.memory.freed import headroom_for
from sparkext.rows.contiguous import make_contiguous, needs_wide_offsets, widen_type
from sparkext.rows.types import conform
from sparkext.storage.container import ContainerWriter, read_footer

WAYS_OUT = (
    "Select fewer columns or filter it, join the other way round, give workers more memory, or use Spark's own join."
)
"""Advice if a build side does not fit the memory of workers."""


def collect_batches(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, max_bytes: int, order: Sequence[int] = ()
) -> pa.Table:
    """Gather a build side's batches into a table of these types, and stop as soon as they exceed `max_bytes`.

    `order`: indexes of the batches in the order of the table, read after the last batch. If it is empty, the
    batches are in the order in which they are received.

    Raises
    ------
    BuildSideTooLargeError
        See `check_build_size`.
    """
    collected: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        size += batch.nbytes
        rows += batch.num_rows
        check_build_size(rows, size, max_bytes)
        collected.append(batch)
    return _combine_batches([collected[number] for number in order] if order else collected, schema)


def read_streamed_table(buffer: pa.Buffer, schema: pa.Schema) -> pa.Table:
    """Read consecutive Arrow streams as a table of these types, without copying."""
    source = pa.BufferReader(buffer)
    batches: list[pa.RecordBatch] = []
    while source.tell() < buffer.size:
        with pa.ipc.open_stream(source) as stream:
            batches.extend(stream)
    return _combine_batches(batches, schema)


def _combine_batches(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    columns = [
        pa.chunked_array(
            [conform(batch.column(number), field.type) for batch in batches], None if batches else field.type
        )
        for number, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(columns, names=schema.names)


def check_build_size(rows: int, size: int, max_bytes: int) -> None:
    """Check the size of the rows read so far against the limit of a build side.

    Raises
    ------
    BuildSideTooLargeError
        The message has the size so far, the limit, and advice.
    """
    if size > max_bytes:
        raise BuildSideTooLargeError(
            f"the build side does not fit: its first {rows:,} rows take {size:,} bytes, the limit is {max_bytes:,}."
            " Select fewer columns or filter it, join the other way round, raise"
            f" {BUILD_SIDE_MAX_BYTES.name} (or max_build_bytes=), partition the join (partitioned=True) or use Spark's"
            " own join."
        )


def check_memory(rows: int, size: int) -> None:
    """Check that there is enough memory to make rows contiguous in memory, because they cannot be stored on disk.

    Raises
    ------
    BuildSideTooLargeError
        There is not enough memory.
    """
    free = headroom_for(size)
    if free is not None and size > free:
        raise BuildSideTooLargeError(
            f"the build side does not fit in memory: making its first {rows:,} rows contiguous takes {size:,} bytes,"
            f" but only {free:,} are free, and the rows cannot be stored on disk. {WAYS_OUT}"
        )


def write_build_file(table: pa.Table, stream: IO[bytes]) -> int:
    """Write all columns of `table`; return the size in bytes."""
    writer = ContainerWriter(stream)
    columns: list[dict[str, Any]] = []
    for field, column in zip(table.schema, table.columns, strict=True):
        columns.append({"name": field.name, **write_column(writer, column, field.name)})
    return writer.finish({"rows": table.num_rows, "columns": columns})


def read_build_file(buffer: pa.Buffer, origin: str) -> tuple[int, list[pa.Array]]:
    """Return the number of rows and the columns, without copying.

    Raises
    ------
    BuildFileError
        The file is truncated, damaged or of another version.
    """
    footer = read_footer(buffer, origin)
    return footer["rows"], [read_column(buffer, location) for location in footer["columns"]]


def write_column(writer: ContainerWriter, column: pa.Array | pa.ChunkedArray, name: str = "") -> dict[str, Any]:
    """Write one column contiguously; return its location, for the footer.

    Raises
    ------
    BuildSideTooLargeError
        See `make_contiguous`.
    """
    arrow_type = column.type
    if _byte_width(arrow_type) is None and not is_var(arrow_type):
        offset, length = writer.block(partial(_write_stream, make_contiguous(column, name)))
        return {"offset": offset, "length": length}
    chunks = [column] if isinstance(column, pa.Array) else column.chunks
    if isinstance(column, pa.ChunkedArray) and len(chunks) > 1 and needs_wide_offsets(column):
        arrow_type = widen_type(arrow_type)
    nulls = sum(chunk.null_count for chunk in chunks)
    buffers = [_validity_pieces(chunks) if nulls else None, *_data_pieces(chunks, arrow_type)]
    return {
        "type": base64.b64encode(pa.schema([("column", arrow_type)]).serialize()).decode(),
        "rows": sum(len(chunk) for chunk in chunks),
        "nulls": nulls,
        "buffers": [None if pieces is None else writer.block(partial(_write_pieces, pieces)) for pieces in buffers],
    }


def read_column(buffer: pa.Buffer, location: Mapping[str, Any]) -> pa.Array:
    """Return the column at this location, without copying."""
    if "buffers" not in location:
        return pa.ipc.open_stream(buffer.slice(location["offset"], location["length"])).read_next_batch().column(0)
    arrow_type = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(location["type"]))).field(0).type
    buffers = [None if part is None else buffer.slice(*part) for part in location["buffers"]]
    return pa.Array.from_buffers(arrow_type, location["rows"], buffers, location["nulls"])


def _byte_width(arrow_type: pa.DataType) -> int | None:
    """Return the width of a type's values in whole bytes, None if they have more than one buffer or are bits."""
    plain = pa.types.is_primitive(arrow_type) or pa.types.is_decimal(arrow_type)
    if not plain and not pa.types.is_fixed_size_binary(arrow_type):
        return None
    return arrow_type.bit_width // 8 or None


def _validity_pieces(chunks: Sequence[pa.Array]) -> Iterable[Any]:
    return [pa.chunked_array([chunk.is_valid() for chunk in chunks]).combine_chunks().buffers()[1]]


def _data_pieces(chunks: Sequence[pa.Array], arrow_type: pa.DataType) -> list[Iterable[Any]]:
    """Return the pieces of each buffer except the validity bitmap."""
    width = _byte_width(arrow_type)
    if width is not None:
        return [(chunk.buffers()[1].slice(chunk.offset * width, len(chunk) * width) for chunk in chunks if len(chunk))]
    is_large = pa.types.is_large_string(arrow_type) or pa.types.is_large_binary(arrow_type)
    offsets = _offset_pieces(chunks, np.dtype(np.int64 if is_large else np.int32))
    return [offsets, (data[ends[0] : ends[-1]] for ends, data in map(view_raw_var_bytes, chunks))]


def _offset_pieces(chunks: Sequence[pa.Array], dtype: np.dtype[Any]) -> Iterator[AnyArray]:
    end = 0
    yield np.zeros(1, dtype=dtype)
    for chunk in chunks:
        ends, _ = view_raw_var_bytes(chunk)
        shift = end - int(ends[0])
        yield ends[1:] if shift == 0 and ends.dtype == dtype else ends[1:].astype(dtype) + dtype.type(shift)
        end += int(ends[-1]) - int(ends[0])


def _write_pieces(pieces: Iterable[Any], sink: IO[bytes]) -> None:
    for piece in pieces:
        sink.write(pa.py_buffer(piece))


def _write_stream(array: pa.Array, sink: IO[bytes]) -> None:
    batch = pa.record_batch([array], names=["column"])
    more_than_32_bits_count = pa.ipc.IpcWriteOptions(allow_64bit=True)
    with pa.ipc.new_stream(sink, batch.schema, options=more_than_32_bits_count) as writer:
        writer.write_batch(batch)
