"""The format of blocks: compact, and fast to write.

    numbers       14, 11, 19        11 and the distances from it, 3, 0, 8, one byte each
    texts         "AIR", "RAIL"     their lengths as numbers, 3 and 0, 1; "AIRRAIL", compressed
    all others    [1, 2], 0.5       unchanged, compressed

Numbers are integers, dates, times, and decimals that fit into 64 bits. They are stored as distances from the smallest
one, in as few bytes as the largest distance needs (frame of reference; Goldstein, Ramakrishnan and Shaft, ICDE 1998).
LZ4 would be ten times slower for them, and its output larger.

    │ rows │ bytes in memory │ note │ base of each column │ width of each │ bitmap of nulls, distances │ … │ others │

The note is a number that the sender chooses. Every part begins at a multiple of eight bytes. The other columns are one
Arrow message with a single row, which has one value per column: a list of its values, or the bytes of its texts.
Several blocks are read into one batch at a time: columns are concatenated as they are unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.errors import SchemaMismatchError
from sparkext.kernels.columns.buffers import (
    UInt8Array,
    allocate_array,
    fixed_width_dtype,
    is_var,
    unpack_validity,
    view_raw_var_bytes,
)
from sparkext.kernels.columns.gather import Column, gather_values
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.keys.decimal_words import halves_of, read_unscaled_digits
from sparkext.kernels.runtime.jit import AnyArray, freeze
from sparkext.kernels.shuffle.partition import PartitionOrder
from sparkext.rows.batching import group_items
from sparkext.rows.morsels import MAX_MORSEL_BYTES, split_range_by_bytes
from sparkext.shuffle.blocks import BLOCK_BYTES

_HEADER = struct.Struct("<QQQ")
_WORD = 8
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

_NO_FRAME = 16
"""The width code of a column that has neither numbers nor lengths."""

_NULLS = 32
"""Added to a width if the column contains nulls."""

_MOST_BLOCKS = 1000
"""Maximum number of blocks that are read together: each needs some kilobytes."""

_ROWS_TOGETHER = 100_000
"""Number of rows that are read together: over half a morsel, as a morsel of two such batches would be a copy."""

_UNSIGNED = {width: np.dtype(f"u{width}") for width in (1, 2, 4, 8)}


@dataclass(frozen=True)
class _Frame:
    """Numbers as distances from `base`, of `width` bytes each; width 0 if all numbers are equal.

    `valid`: uint8[n], 1 for values that are not null; None if there are no nulls.
    """

    base: int
    width: int
    distances: AnyArray | None = None
    valid: UInt8Array | None = None

    @property
    def code(self) -> int:
        """The width code in a block."""
        return self.width + (0 if self.valid is None else _NULLS)

    def at(self, rows: RowIds) -> _Frame:
        """Return the frame of these rows, in this order."""
        distances = None if self.distances is None else gather_values(self.distances, rows)
        return replace(self, distances=distances, valid=None if self.valid is None else gather_values(self.valid, rows))

    def parts(self, start: int, stop: int) -> Iterator[bytes | memoryview]:
        """Yield the packed bytes of rows `start` to `stop`, padded to whole words."""
        if self.valid is not None:
            yield from _pad_to_words(np.packbits(self.valid[start:stop], bitorder="little"))
        if self.distances is not None:
            yield from _pad_to_words(self.distances[start:stop])


class PackedRows:
    """Rows in a given order (at least one row), written to `sink` in packed form, a range at a time.

    Raises
    ------
    SchemaMismatchError
        A nested value has 64-bit offsets, which readers do not support.
    """

    def __init__(self, rows: pa.RecordBatch, order: RowIds, sink: pa.BufferOutputStream) -> None:
        """Compute the frames of all columns. Numbers are reordered in packed form, which moves fewer bytes."""
        self._sink = sink
        columns, self._frames = [], []
        for column in rows.columns:
            frame = _frame_of_numbers(column if column.offset == 0 else pa.concat_arrays([column]))
            if frame is None:
                column = _check_offsets(Column.of(column).take(order, False))
                frame = _frame_of_lengths(column) if is_var(column.type) else _Frame(0, _NO_FRAME)
            else:
                frame = frame.at(order)
            columns.append(column)
            self._frames.append(frame)
        bases = np.array([frame.base for frame in self._frames], dtype=np.int64)
        codes = bytes(frame.code for frame in self._frames)
        self._frame_header = b"".join([bases.tobytes(), *_pad_to_words(np.frombuffer(codes, np.uint8))])
        self._message_columns = [
            column for column, frame in zip(columns, self._frames, strict=True) if _is_other(column.type, frame.width)
        ]
        self._texts = [view_raw_var_bytes(column)[0] for column in columns if is_var(column.type)]
        self._nested = [column for column in columns if pa.types.is_nested(column.type)]
        self._row_bytes = sum(_row_bytes(column.type) for column in columns)
        self._schema = _schema_of_others([column.type for column in columns], codes)
        self._writer = pa.ipc.new_stream(sink, self._schema, options=_COMPRESSED)
        self._writer.write_batch(pa.RecordBatch.from_pylist([], schema=self._schema))  # begins with the schema

    def size(self, start: int, stop: int) -> int:
        """Return the estimated number of bytes of these rows in memory."""
        texts = sum(int(ends[stop]) - int(ends[start]) for ends in self._texts)
        nested = sum(column.slice(start, stop - start).nbytes for column in self._nested)
        return int((stop - start) * self._row_bytes + texts + nested)

    def write(self, start: int, stop: int, size: int, note: int = 0) -> None:
        """Write these rows as one block; `size` is their number of bytes in memory."""
        header = [_HEADER.pack(stop - start, size, note), self._frame_header]
        self._sink.write(b"".join([*header, *(part for frame in self._frames for part in frame.parts(start, stop))]))
        if self._message_columns:
            values = [_as_one_value(column, start, stop) for column in self._message_columns]
            self._writer.write_batch(pa.RecordBatch.from_arrays(values, schema=self._schema))


class PackedBlock(NamedTuple):
    """A block of bucket `bucket`: bytes `start` to `stop` of a buffer; its rows have `size` bytes in memory."""

    bucket: int
    start: int
    stop: int
    size: int


def pack_blocks(
    rows: pa.RecordBatch, order: PartitionOrder, note: Callable[[int, int], int] = lambda start, stop: 0
) -> tuple[pa.Buffer, list[PackedBlock]]:
    """Pack rows into blocks of one bucket each, in one buffer. `order` has the row ids of each bucket.

    `note(start, stop)`: the note of a block with these rows of `order`, an unsigned 64-bit number.
    """
    sink = pa.BufferOutputStream()
    if not order.rows.size:
        return sink.getvalue(), []
    packed = PackedRows(rows, order.rows, sink)
    blocks = []
    for bucket in np.flatnonzero(np.diff(order.starts)).tolist():
        first, last = int(order.starts[bucket]), int(order.starts[bucket + 1])
        for start, stop, size in split_range_by_bytes(
            lambda start, stop: packed.size(start, stop), first, last, BLOCK_BYTES
        ):
            begin = sink.tell()
            packed.write(start, stop, size, note(start, stop))
            blocks.append(PackedBlock(bucket, begin, sink.tell(), size))
    return sink.getvalue(), blocks


def blocks_of(
    rows: pa.RecordBatch, order: PartitionOrder, note: Callable[[int, int], int] = lambda start, stop: 0
) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield the same blocks one by one, each with its bucket."""
    run, blocks = pack_blocks(rows, order, note)
    for block in blocks:
        yield block.bucket, run.slice(block.start, block.stop - block.start)


def keep_order(rows: int) -> PartitionOrder:
    """Return the order of rows in a single bucket that leaves them as they are."""
    ids = np.arange(rows, dtype=row_id_dtype(rows))
    return PartitionOrder(freeze(ids), freeze(np.array([0, rows], dtype=np.int64)))


class BlockHeader(NamedTuple):
    """The number of rows of a block, their bytes in memory, and the note."""

    rows: int
    size: int
    note: int

    @classmethod
    def of(cls, block: pa.Buffer) -> BlockHeader:
        """Read the header of a block."""
        return cls(*_HEADER.unpack(block.slice(0, _HEADER.size)))


class RowUnpacker:
    """Reads blocks with a given schema, which blocks do not contain. Columns without a number in `read` are null."""

    def __init__(self, schema: pa.Schema, read: Collection[int] | None = None) -> None:
        """Bind it to the schema; without `read`, all columns are read."""
        self._schema = schema
        self._read = range(len(schema)) if read is None else read
        self._columns = [_ColumnType.of(arrow_type) for arrow_type in schema.types]
        self._message_schemas: dict[bytes, pa.Schema] = {}

    def batches(
        self, blocks: Iterable[pa.Buffer], most_rows: int = _ROWS_TOGETHER, most_bytes: int = MAX_MORSEL_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all blocks. Blocks are combined up to `most_rows` rows and `most_bytes` bytes in memory."""
        return (
            self._batch(group)
            for group in group_items(
                map(self._block, blocks),
                lambda block: (block.rows, block.size, 1),
                lambda: (most_rows, most_bytes, _MOST_BLOCKS),
            )
        )

    def unpack(self, block: pa.Buffer) -> pa.RecordBatch:
        """Return the rows of one block."""
        return self._batch([self._block(block)])

    def _batch(self, blocks: Sequence[_Block]) -> pa.RecordBatch:
        rows = sum(block.rows for block in blocks)
        columns = [
            column.array(blocks, number, rows) if number in self._read else pa.nulls(rows, column.arrow_type)
            for number, column in enumerate(self._columns)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _block(self, content: pa.Buffer) -> _Block:
        columns = len(self._columns)
        rows, size, _ = BlockHeader.of(content)
        bases = np.frombuffer(content, np.int64, columns, _HEADER.size).tolist()
        position = _HEADER.size + columns * _WORD
        codes = content.slice(position, columns).to_pybytes()
        position += _round_up_to_words(columns)
        frames = []
        for base, code in zip(bases, codes, strict=True):
            valid = distances = None
            width = code % _NULLS
            if code >= _NULLS:
                bitmap = np.frombuffer(content, np.uint8, -(-rows // 8), position)
                valid = np.unpackbits(bitmap, count=rows, bitorder="little")
                position += _round_up_to_words(bitmap.size)
            if width in _UNSIGNED:
                distances = np.frombuffer(content, _UNSIGNED[width], rows, position)
                position += _round_up_to_words(distances.nbytes)
            frames.append(_Frame(base, width, distances, valid))
        if codes not in self._message_schemas:
            self._message_schemas[codes] = _schema_of_others(self._schema.types, codes)
        numbers = [
            number
            for number, (column, frame) in enumerate(zip(self._columns, frames, strict=True))
            if _is_other(column.arrow_type, frame.width)
        ]
        values: list[pa.Array | None] = [None] * columns
        if not set(numbers).isdisjoint(self._read):
            message = pa.ipc.read_record_batch(content.slice(position), self._message_schemas[codes])
            for number, value in zip(numbers, message.columns, strict=True):
                values[number] = value
        return _Block(rows, size, frames, values)


@dataclass(frozen=True)
class _Block:
    """The unpacked header of a block: a frame per column, and the compressed values of the other columns."""

    rows: int
    size: int
    frames: Sequence[_Frame]
    values: Sequence[pa.Array | None]


@dataclass(frozen=True)
class _ColumnType:
    """A column type. `dtype`: the type of its numbers or of its text offsets; None for all other types."""

    arrow_type: pa.DataType
    dtype: np.dtype[Any] | None

    @classmethod
    def of(cls, arrow_type: pa.DataType) -> _ColumnType:
        if is_var(arrow_type):
            large = pa.types.is_large_string(arrow_type) or pa.types.is_large_binary(arrow_type)
            return cls(arrow_type, np.dtype(np.int64 if large else np.int32))
        return cls(
            arrow_type, np.dtype(np.int64) if pa.types.is_decimal128(arrow_type) else _find_signed_dtype(arrow_type)
        )

    def array(self, blocks: Sequence[_Block], number: int, rows: int) -> pa.Array:
        """Return the column at position `number` of all blocks."""
        frames = [block.frames[number] for block in blocks]
        values: list[Any] = [block.values[number] for block in blocks]
        if self.dtype is None:
            return _join_arrays([value.flatten() for value in values])
        if any(frame.width == _NO_FRAME for frame in frames):  # some blocks have decimals of more than 64 bits
            return _join_arrays(
                [
                    value.flatten() if value is not None else self._numbers([block], [frame], block.rows)
                    for block, frame, value in zip(blocks, frames, values, strict=True)
                ]
            )
        if is_var(self.arrow_type):
            return self._texts(blocks, frames, values, rows)
        return self._numbers(blocks, frames, rows)

    def _numbers(self, blocks: Sequence[_Block], frames: Sequence[_Frame], rows: int) -> pa.Array:
        numbers = self._restore_numbers(blocks, frames, rows)
        if pa.types.is_decimal128(self.arrow_type):
            numbers = halves_of(freeze(numbers))
        return pa.Array.from_buffers(self.arrow_type, rows, [_join_bitmaps(blocks, frames), pa.py_buffer(numbers)])

    def _texts(
        self, blocks: Sequence[_Block], frames: Sequence[_Frame], values: Sequence[pa.Array], rows: int
    ) -> pa.Array:
        lengths = self._restore_numbers(blocks, frames, rows)
        ends = allocate_array(rows + 1, lengths.dtype)
        ends[0] = 0
        np.cumsum(lengths, out=ends[1:])
        texts = [_bytes_of(value) for value in values]
        data = texts[0] if len(texts) == 1 else allocate_array(int(ends[-1]), np.uint8)
        if len(texts) > 1:
            np.concatenate(texts, out=data)
        buffers = [_join_bitmaps(blocks, frames), pa.py_buffer(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(self.arrow_type, rows, buffers)

    def _restore_numbers(self, blocks: Sequence[_Block], frames: Sequence[_Frame], rows: int) -> AnyArray:
        assert self.dtype is not None, "it has numbers or lengths"
        numbers = allocate_array(rows, self.dtype)
        start = 0
        for block, frame in zip(blocks, frames, strict=True):
            part = numbers[start : start + block.rows]
            if frame.distances is None:
                part.fill(frame.base)
            elif frame.width == self.dtype.itemsize:
                part[:] = frame.distances.view(self.dtype)
            else:
                np.add(frame.distances, self.dtype.type(frame.base), out=part, dtype=self.dtype)
            start += block.rows
        return numbers


def _join_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _join_bitmaps(blocks: Sequence[_Block], frames: Sequence[_Frame]) -> pa.Buffer | None:
    """Return the validity bitmap, 1 for values that are not null; None if there are no nulls."""
    if all(frame.valid is None for frame in frames):
        return None
    valid = [
        np.ones(block.rows, np.uint8) if frame.valid is None else frame.valid
        for block, frame in zip(blocks, frames, strict=True)
    ]
    return pa.py_buffer(np.packbits(np.concatenate(valid), bitorder="little"))


def _frame_of_lengths(column: pa.Array) -> _Frame:
    """Return the frame of the texts' lengths; nulls have lengths, too."""
    lengths = np.diff(view_raw_var_bytes(column)[0])
    return _create_frame(lengths, unpack_validity(column), int(lengths.min()), int(lengths.max()))


def _frame_of_numbers(column: pa.Array) -> _Frame | None:
    """Return the frame of a column's numbers; None if it has no numbers, or decimals of more than 64 bits."""
    if pa.types.is_decimal128(column.type):
        words = read_unscaled_digits(column)
        return None if words is None else _create_frame(words.digits, unpack_validity(column), words.least, words.most)
    dtype = _find_signed_dtype(column.type)
    if dtype is None:
        return None
    buffers = column.buffers()
    integers = pa.Array.from_buffers(pa.from_numpy_dtype(dtype), len(column), buffers)
    extremes = pc.min_max(integers)
    numbers = np.frombuffer(buffers[1], dtype, len(column))
    return _create_frame(numbers, unpack_validity(column), extremes["min"].as_py() or 0, extremes["max"].as_py() or 0)


def _create_frame(numbers: AnyArray, valid: UInt8Array | None, least: int, most: int) -> _Frame:
    if least == most:
        return _Frame(least, 0, None, valid)
    itemsize = numbers.dtype.itemsize
    width = next(width for width in _UNSIGNED if most - least < 1 << 8 * width)
    if width >= itemsize:
        return _Frame(0, itemsize, numbers.view(_UNSIGNED[itemsize]), valid)
    distances = np.subtract(numbers, numbers.dtype.type(least)).astype(_UNSIGNED[width])  # arbitrary for nulls
    return _Frame(least, width, distances, valid)


def _check_offsets(column: pa.Array) -> pa.Array:
    """Return the column if its layout follows from the type that Spark declares; otherwise raise an error."""
    if pa.types.is_nested(column.type) and _has_wide_offsets(column.type):
        raise SchemaMismatchError(f"a column of {column.type} cannot be sent: its offsets have 64 bits, expected 32")
    return column


def _has_wide_offsets(kind: pa.DataType) -> bool:
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_list(kind):
        return True
    return any(_has_wide_offsets(kind.field(number).type) for number in range(kind.num_fields))


def _as_one_value(column: pa.Array, start: int, stop: int) -> pa.Array:
    """Return a range of rows as one value: the bytes of their texts, or a list of their values."""
    if not is_var(column.type):
        return pa.LargeListArray.from_arrays(pa.array([start, stop], pa.int64()), column)
    offsets, data = view_raw_var_bytes(column)
    ends = np.array([offsets[start], offsets[stop]], dtype=np.int64)
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _bytes_of(value: pa.Array) -> UInt8Array:
    """Return the bytes of a single binary value."""
    (start, stop), data = view_raw_var_bytes(value)
    return data[start:stop]


def _schema_of_others(kinds: Sequence[pa.DataType], codes: bytes) -> pa.Schema:
    message_types = [kind for kind, code in zip(kinds, codes, strict=True) if _is_other(kind, code % _NULLS)]
    return pa.schema([("", pa.large_binary() if is_var(kind) else pa.large_list(kind)) for kind in message_types])


def _is_other(kind: pa.DataType, width: int) -> bool:
    return width == _NO_FRAME or is_var(kind)


def _row_bytes(kind: pa.DataType) -> int:
    """Return the fixed bytes per value: for a text, the size of its offset; for nested values, 0."""
    if is_var(kind):
        return 4
    return 0 if pa.types.is_nested(kind) or pa.types.is_null(kind) else -(-kind.bit_width // 8)


def _pad_to_words(values: AnyArray) -> Iterator[bytes | memoryview]:
    """Yield the bytes of values, and the padding to a whole word."""
    yield values.data.cast("B")
    yield bytes(_round_up_to_words(values.nbytes) - values.nbytes)


def _round_up_to_words(size: int) -> int:
    return -(-size // _WORD) * _WORD


def _find_signed_dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    dtype = None if pa.types.is_floating(kind) else fixed_width_dtype(kind)
    return None if dtype is None else np.dtype(f"i{dtype.itemsize}")
