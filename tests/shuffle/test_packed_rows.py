"""Packed rows are unpacked unchanged for all types, and are as small as their numbers permit."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkext.errors import SchemaMismatchError
from sparkext.kernels.columns.row_ids import RowIds
from sparkext.kernels.runtime.jit import freeze
from sparkext.shuffle.packed_rows import BlockHeader, PackedRows, RowUnpacker, blocks_of, keep_order

_BITS = (8, 16, 32, 64)
_TYPES = {
    **{pa.from_numpy_dtype(f"i{bits // 8}"): st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in _BITS},
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(dt.timezone.utc)),
    pa.duration("us"): st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999)),
    pa.decimal128(15, 2): st.decimals(-(10**12), 10**12, places=2),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    pa.decimal128(38, 3): st.decimals(-(10**9), 10**9, places=3),
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=400),
    pa.list_(pa.int32()): st.lists(st.integers(-9, 9), max_size=3),
    pa.struct([("a", pa.int32()), ("b", pa.string())]): st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.text()}),
    pa.map_(pa.string(), pa.int64()): st.dictionaries(st.text(max_size=3), st.integers(0, 9)).map(
        lambda m: [*m.items()]
    ),
    pa.null(): st.none(),
}


@st.composite
def _rows(draw: st.DrawFn) -> pa.RecordBatch:
    """Draw some columns as a slice of more rows, with few or many distinct values."""
    kinds = draw(st.lists(st.sampled_from(list(_TYPES)), min_size=1, max_size=9))
    count, before, behind = draw(st.integers(1, 40)), draw(st.integers(0, 9)), draw(st.integers(0, 3))

    def column(kind: pa.DataType) -> pa.Array:
        size = before + count + behind
        value = _TYPES[kind]
        if draw(st.booleans()):
            value = st.sampled_from(draw(st.lists(value, min_size=1, max_size=2)))
        if draw(st.booleans()):
            value = value | st.none()
        return pa.array(draw(st.lists(value, min_size=size, max_size=size)), kind).slice(before, count)

    columns = [column(kind) for kind in kinds]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{number}" for number in range(len(columns))])


@settings(deadline=None)  # the first example compiles
@given(_rows(), st.data())
def test_what_comes_out_is_what_went_in(rows: pa.RecordBatch, data: st.DataObject) -> None:
    ends = sorted(data.draw(st.sets(st.integers(0, rows.num_rows), max_size=4)) | {0, rows.num_rows})
    sink = pa.BufferOutputStream()
    order = np.array(data.draw(st.permutations(range(rows.num_rows))), dtype=np.int32)
    packed = PackedRows(rows, freeze(order), sink)
    rows = rows.take(pa.array(order))
    parts = []
    for start, stop in pairwise(ends):
        at = sink.tell()
        packed.write(start, stop, packed.size(start, stop), start)
        parts.append((start, stop, at, sink.tell()))
    content, unpacker = sink.getvalue(), RowUnpacker(rows.schema)
    some = data.draw(st.sets(st.integers(0, rows.num_columns - 1)))
    nulls = [pa.nulls(rows.num_rows, kind) for kind in rows.schema.types]
    read = [column if place in some else nulls[place] for place, column in enumerate(rows.columns)]
    partly, kept = RowUnpacker(rows.schema, some), pa.RecordBatch.from_arrays(read, schema=rows.schema)
    for start, stop, at, end in parts:
        assert at % 8 == end % 8 == 0, "so that words can be read where they lie"
        assert BlockHeader.of(content.slice(at)) == (stop - start, packed.size(start, stop), start)
        [found] = unpacker.batches([content.slice(at, end - at)], 1, 1)
        found.validate(full=True)
        assert found.equals(rows.slice(start, stop - start)) and found.num_rows == stop - start
        assert [column.null_count for column in found.columns] == [
            column.slice(start, stop - start).null_count for column in rows.columns
        ]
        [found] = partly.batches([content.slice(at, end - at)], 1, 1)
        assert found.equals(kept.slice(start, stop - start))


@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary()])
def test_texts_with_wide_offsets_are_read_as_what_is_declared(kind: pa.DataType) -> None:
    sink = pa.BufferOutputStream()
    packed = PackedRows(pa.record_batch([pa.array(["a", None, "bc"], kind)], names=["c"]), _in_order(3), sink)
    start = sink.tell()
    packed.write(0, 3, packed.size(0, 3))
    [found] = RowUnpacker(pa.schema([("c", pa.string())])).batches([sink.getvalue().slice(start)], 100, 100)
    assert found.column(0).to_pylist() == ["a", None, "bc"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_list(pa.int32()),
        pa.list_(pa.large_string()),
        pa.map_(pa.string(), pa.list_(pa.large_binary())),
        pa.struct([("a", pa.int32()), ("b", pa.large_string())]),
    ],
)
def test_nested_values_with_wide_offsets_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match="64 bits, expected 32"):
        PackedRows(pa.record_batch([pa.nulls(3, kind)], names=["c"]), _in_order(3), pa.BufferOutputStream())


def test_rows_without_columns_are_counted() -> None:
    rows = pa.record_batch([pa.array([1, 2, 3])], names=["c"]).select([])
    [(_, block)] = blocks_of(rows, keep_order(3))
    assert BlockHeader.of(block).rows == 3


def _in_order(rows: int) -> RowIds:
    return freeze(np.arange(rows, dtype=np.int32))


def _size(column: pa.Array) -> int:
    sink = pa.BufferOutputStream()
    packed = PackedRows(pa.record_batch([column], names=["c"]), _in_order(len(column)), sink)
    start = sink.tell()
    packed.write(0, len(column), packed.size(0, len(column)))
    return sink.tell() - start


@pytest.mark.parametrize(
    ("farthest", "width"),
    [(0, 0), (1, 1), (255, 1), (256, 2), (65535, 2), (65536, 4), ((1 << 32) - 1, 4), (1 << 32, 8)],
)
@pytest.mark.parametrize("base", [0, -(1 << 63), (1 << 63) - 1 - (1 << 32)])
def test_numbers_take_no_more_bytes_than_the_farthest_needs(base: int, farthest: int, width: int) -> None:
    rows = 10_000
    numbers = np.full(rows, base, dtype=np.int64)
    numbers[-1] = base + farthest
    assert abs(_size(pa.array(numbers)) - rows * width) < 400


def test_nulls_do_not_make_numbers_wider() -> None:
    """The value under a null is arbitrary, but a timestamp is far from 0."""
    moments: list[Any] = [1_800_000_000_000_000 + number for number in range(10_000)]
    moments[::10] = [None] * 1000
    assert _size(pa.array(moments, pa.timestamp("us"))) < 10_000 * (2 + 1 / 8) + 400


def test_lengths_of_short_texts_take_a_byte_or_none() -> None:
    rows = 10_000
    assert _size(pa.array(["x"] * rows)) < 700
    assert _size(pa.array(["", "x"] * (rows // 2))) < rows + 700
