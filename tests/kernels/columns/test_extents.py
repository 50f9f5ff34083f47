"""Sizes of rows from their offsets, against the bytes that Arrow copies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sparkext.kernels.columns.extents import fixed_bytes, measure_rows
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.runtime.jit import freeze
from tests.support.kernel_inputs import PAYLOADS, with_nulls

TYPES = [
    *PAYLOADS,
    pa.large_list(pa.string()),
    pa.list_(pa.map_(pa.string(), pa.struct([("x", pa.list_(pa.binary()))]))),
    pa.list_(pa.int16(), 3),
    pa.struct([("x", pa.int64()), ("y", pa.bool_()), ("z", pa.list_(pa.float64(), 2))]),
]
VALUES = {
    TYPES[-4]: [["a", "bc"], [], ["d" * 100], [None, ""]],
    TYPES[-3]: [[[("k", {"x": [b"1", b"22"]})], []], [], [[("", {"x": None}), ("l", {"x": []})]], [None]],
    TYPES[-2]: [[1, 2, 3], [4, None, 6], [7, 8, 9]],
    TYPES[-1]: [{"x": 1, "y": True, "z": [1.0, 2.0]}, {"x": None, "y": None, "z": [3.0, None]}],
}


def copied(array: pa.Array) -> int:
    """Return the bytes of the buffers of a copy, without validity bits; booleans count as whole bytes."""
    kind = array.type
    if pa.types.is_struct(kind):
        return sum(copied(array.field(number)) for number in range(kind.num_fields))
    if pa.types.is_fixed_size_list(kind):
        return copied(array.values)
    offset_bytes = {pa.types.is_large_list: 8, pa.types.is_list: 4, pa.types.is_map: 4}
    for is_kind, width in offset_bytes.items():
        if is_kind(kind):
            return width * len(array) + copied(array.values)
    buffers = array.buffers()
    if len(buffers) == 3:
        wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        return (8 if wide else 4) * len(array) + sum(len(value.as_py() or b"") for value in _as_bytes(array))
    return sum(-(-kind.bit_width // 8) for _ in array) if len(buffers) == 2 else 0


def _as_bytes(array: pa.Array) -> pa.Array:
    return array.cast(pa.large_binary())


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_row_takes_what_is_copied_of_it(kind: pa.DataType) -> None:
    values = (PAYLOADS | VALUES)[kind]
    whole = pa.array(values * 3, kind)
    for array in (whole, whole.slice(len(values) - 1, len(values) + 1), whole.slice(2, 1)):
        rows = np.array([0, len(array) - 1, 0], dtype=np.int32)
        expected = [copied(array.take(pa.array([row]))) for row in rows.tolist()]
        assert measure_rows(array, freeze(rows), missing=False).tolist() == expected
        with_missing = freeze(np.array([-1, 0, -1], dtype=np.int64))
        assert measure_rows(array, with_missing, missing=True).tolist() == [0, expected[0], 0]
        width = fixed_bytes(kind)
        assert width is None or set(expected) == {width}


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_null_takes_no_more_than_what_lies_beneath(kind: pa.DataType) -> None:
    values = (PAYLOADS | VALUES)[kind]
    if kind == pa.null():
        return
    array = with_nulls(pa.array(values, kind), [row % 2 == 0 for row in range(len(values))])
    rows = freeze(np.arange(len(values)))
    bounds = measure_rows(array, rows, missing=False)
    for row, bound in enumerate(bounds.tolist()):
        assert copied(array.take(pa.array([row]))) <= bound
    assert measure_rows(array.slice(0, 0), freeze(np.array([-1])), missing=True).tolist() == [0]


def test_columns_tell_which_rows_have_to_be_looked_at() -> None:
    assert Column.of(pa.array([True, None])).most_row_bytes == 1
    assert Column.of(pa.array([None], pa.decimal128(30, 2))).most_row_bytes == 16
    assert Column.of(pa.array([{"x": 1, "y": 2}])).most_row_bytes == 16
    assert Column.of(pa.array([[1, 2], []])).most_row_bytes == float("inf")
    sizes = np.zeros(2, dtype=np.int64)
    Column.of(pa.array([[1, 2], []])).add_sizes(freeze(np.array([1, 0])), False, sizes)
    assert sizes.tolist() == [4, 20]
