"""Rows in little room that takes little time to fill: what the cells of a map task's file hold.

    numbers       14, 11, 19        11 and the distances from it, 3, 0, 8, of one byte each
    texts         "AIR", "RAIL"     their lengths as numbers, 3 and 0, 1; "AIRRAIL", compressed
    all others    [1, 2], 0.5       as they are, compressed

Numbers are integers, dates, times, and decimals of one word. They are stored as distances from the least one, in as few
bytes as the farthest takes (frame of reference; Goldstein, Ramakrishnan and Shaft, ICDE 1998): LZ4 takes ten times as
long for them, and leaves more bytes.

    │ rows │ bytes of distances │ base of each column │ width of each column │ distances │ others │
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.buffers import allocate, fixed_width_dtype, is_var, raw_var_bytes
from sparkext.kernels.decimal_words import halves_of, words_of
from sparkext.kernels.jit import AnyArray, frozen

_HEADER = struct.Struct("<II")
_WORD = 8
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

_NO_FRAME = 16
"""In place of a width: the column is no numbers, and has no lengths."""


@dataclass(frozen=True)
class _Frame:
    """Numbers as distances from `base`, each of `width` bytes; of none where all are equal, and none is null."""

    base: int
    width: int
    distances: pa.Array | None = None

    @property
    def validity(self) -> pa.Buffer | None:
        """Return which of them are not null; None if none is."""
        return None if self.distances is None else self.distances.buffers()[0]

    def numbers(self, rows: int, dtype: np.dtype[Any]) -> AnyArray:
        """Return the numbers, of this type; those that are null may be any."""
        if self.distances is None:
            return np.full(rows, self.base, dtype=dtype)
        distances = np.frombuffer(self.distances.buffers()[1], f"u{self.width}", rows)
        if self.width == dtype.itemsize:
            return distances.view(dtype)
        numbers = allocate(rows, dtype)
        np.add(distances, dtype.type(self.base), out=numbers, dtype=dtype)
        return numbers


class PackedRows:
    """Rows, at least one of at least one column, that are written packed to `sink`, some of them at a time."""

    def __init__(self, rows: pa.RecordBatch, sink: pa.BufferOutputStream) -> None:
        """Find the frames of all columns."""
        self._sink = sink
        columns = [column if column.offset == 0 else pa.concat_arrays([column]) for column in rows.columns]
        frames = [_frame_of(column) for column in columns]
        self._codes = _codes(frames)
        distances = [frame.distances for frame in frames if frame.distances is not None]
        self._distances = pa.RecordBatch.from_arrays(distances, names=[""] * len(distances))
        widths = [frame.width for frame in frames]
        self._others = [column for column, width in zip(columns, widths, strict=True) if _is_other(column.type, width)]
        self._schema = _schema_of_others(rows.schema.types, widths)
        self._writer = pa.ipc.new_stream(sink, self._schema, options=_COMPRESSED)
        self._writer.write_batch(pa.RecordBatch.from_pylist([], schema=self._schema))  # behind the schema, once

    def write(self, start: int, stop: int) -> None:
        """Write these rows."""
        distances = self._distances.slice(start, stop - start).serialize() if self._distances.num_columns else b""
        self._sink.write(_HEADER.pack(stop - start, len(distances)))
        self._sink.write(self._codes)
        self._sink.write(distances)
        if self._others:
            others = [_as_one_value(column, start, stop) for column in self._others]
            self._writer.write_batch(pa.RecordBatch.from_arrays(others, schema=self._schema))


class RowUnpacker:
    """Reads rows of this schema that were written packed."""

    def __init__(self, schema: pa.Schema) -> None:
        """Bind it to the schema, which no cell has."""
        self._schema = schema
        self._layouts: dict[bytes, _Layout] = {}

    def rows(self, cell: pa.Buffer) -> pa.RecordBatch:
        """Return the rows that one call has written."""
        rows, size = _HEADER.unpack(cell.slice(0, _HEADER.size))
        columns = len(self._schema)
        bases = np.frombuffer(cell, np.int64, columns, _HEADER.size).tolist()
        at = _HEADER.size + columns * _WORD
        widths = cell.slice(at, columns).to_pybytes()
        layout = self._layouts.get(widths)
        if layout is None:
            layout = self._layouts[widths] = _Layout.of(self._schema.types, widths)
        at += -(-columns // _WORD) * _WORD
        return pa.RecordBatch.from_arrays(
            layout.columns(rows, bases, cell.slice(at, size), cell.slice(at + size)), schema=self._schema
        )


@dataclass(frozen=True)
class _Layout:
    """How cells lie whose columns have these widths."""

    kinds: Sequence[_Kind]
    distances: pa.Schema
    others: pa.Schema

    @classmethod
    def of(cls, types: Sequence[pa.DataType], widths: bytes) -> _Layout:
        kinds = [_Kind.of(arrow_type, width) for arrow_type, width in zip(types, widths, strict=True)]
        distances = [("", _unsigned(width)) for width in widths if 0 < width < _NO_FRAME]
        return cls(kinds, pa.schema(distances), _schema_of_others(types, widths))

    def columns(self, rows: int, bases: Sequence[int], distances: pa.Buffer, others: pa.Buffer) -> list[pa.Array]:
        """Read both batches of a cell."""
        theirs, rest = _columns(distances, self.distances), _columns(others, self.others)

        def column(kind: _Kind, base: int) -> pa.Array:
            if kind.width == _NO_FRAME:
                return next(rest).flatten()
            frame = _Frame(base, kind.width, next(theirs) if kind.width else None)
            return kind.numbers(rows, frame) if not kind.text else kind.texts(rows, frame, next(rest).buffers()[2])

        return list(map(column, self.kinds, bases))


def _columns(message: pa.Buffer, schema: pa.Schema) -> Iterator[pa.Array]:
    return iter(pa.ipc.read_record_batch(message, schema).columns if len(schema) else ())


@dataclass(frozen=True)
class _Kind:
    """A column of which the numbers, or the ends of texts, are of this numpy type."""

    arrow_type: pa.DataType
    width: int
    dtype: np.dtype[Any]
    text: bool
    decimal: bool

    @classmethod
    def of(cls, arrow_type: pa.DataType, width: int) -> _Kind:
        large = pa.types.is_large_string(arrow_type) or pa.types.is_large_binary(arrow_type)
        text, decimal = is_var(arrow_type), pa.types.is_decimal128(arrow_type)
        dtype = np.dtype(np.int64 if large else np.int32) if text else _signed(arrow_type) or np.dtype(np.int64)
        return cls(arrow_type, width, dtype, text, decimal)

    def numbers(self, rows: int, frame: _Frame) -> pa.Array:
        values = frame.numbers(rows, self.dtype)
        if self.decimal:
            values = halves_of(frozen(values))
        return pa.Array.from_buffers(self.arrow_type, rows, [frame.validity, pa.py_buffer(values)])

    def texts(self, rows: int, frame: _Frame, data: pa.Buffer) -> pa.Array:
        ends = np.zeros(rows + 1, dtype=self.dtype)
        np.cumsum(frame.numbers(rows, self.dtype), out=ends[1:])
        return pa.Array.from_buffers(self.arrow_type, rows, [frame.validity, pa.py_buffer(ends), data])


def _frame_of(column: pa.Array) -> _Frame:
    """Return the frame of a column's numbers, or of the lengths of its texts."""
    validity = column.buffers()[0] if column.null_count else None
    if is_var(column.type):
        lengths = np.diff(raw_var_bytes(column)[0])
        return _frame(lengths, validity, int(lengths.min()), int(lengths.max()))  # nulls have lengths, too
    if pa.types.is_decimal128(column.type):
        words = words_of(column)
        return _Frame(0, _NO_FRAME) if words is None else _frame(words.digits, validity, words.least, words.most)
    dtype = _signed(column.type)
    if dtype is None:
        return _Frame(0, _NO_FRAME)
    numbers = np.frombuffer(column.buffers()[1], dtype, len(column))
    extremes = pc.min_max(_array(pa.from_numpy_dtype(dtype), numbers, validity))
    return _frame(numbers, validity, extremes["min"].as_py() or 0, extremes["max"].as_py() or 0)


def _frame(numbers: AnyArray, validity: pa.Buffer | None, least: int, most: int) -> _Frame:
    if least == most and validity is None:
        return _Frame(least, 0)
    own = numbers.dtype.itemsize
    width = next(width for width in (1, 2, 4, 8) if most - least < 1 << 8 * width)
    if width >= own:
        return _Frame(0, own, _array(_unsigned(own), numbers, validity))
    distances = np.subtract(numbers, numbers.dtype.type(least)).astype(f"u{width}")  # of nulls, they may be anything
    return _Frame(least, width, _array(_unsigned(width), distances, validity))


def _array(kind: pa.DataType, values: AnyArray, validity: pa.Buffer | None) -> pa.Array:
    return pa.Array.from_buffers(kind, values.size, [validity, pa.py_buffer(values)])


def _as_one_value(column: pa.Array, start: int, stop: int) -> pa.Array:
    """Return rows of a column as one value: the bytes of all their texts, or a list of them."""
    if not is_var(column.type):
        return pa.LargeListArray.from_arrays(pa.array([start, stop], pa.int64()), column)
    offsets, data = raw_var_bytes(column)
    ends = np.array([offsets[start], offsets[stop]], dtype=np.int64)
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _schema_of_others(kinds: Sequence[pa.DataType], widths: Sequence[int]) -> pa.Schema:
    others = [kind for kind, width in zip(kinds, widths, strict=True) if _is_other(kind, width)]
    return pa.schema([("", pa.large_binary() if is_var(kind) else pa.large_list(kind)) for kind in others])


def _is_other(kind: pa.DataType, width: int) -> bool:
    return width == _NO_FRAME or is_var(kind)


def _codes(frames: Sequence[_Frame]) -> bytes:
    bases = np.array([frame.base for frame in frames], dtype=np.int64)
    widths = bytes(frame.width for frame in frames)
    return bases.tobytes() + widths.ljust(-(-len(widths) // _WORD) * _WORD, b"\0")


def _signed(kind: pa.DataType) -> np.dtype[Any] | None:
    dtype = None if pa.types.is_floating(kind) else fixed_width_dtype(kind)
    return None if dtype is None else np.dtype(f"i{dtype.itemsize}")


def _unsigned(width: int) -> pa.DataType:
    return pa.from_numpy_dtype(np.dtype(f"u{width}"))
