"""Numbers beyond 32 bits: rows, pairs and bytes, without using that much memory.

Untouched pages of zeros use no memory, and a probe can resume anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from sparkext.build_sides.index_builder import build_index
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.kernels.columns.gather import MAX_VAR_BYTES, Column, VarBytesOverflowError
from sparkext.kernels.columns.row_ids import NARROW_ROWS, row_id_dtype
from sparkext.kernels.indexes.all_rows_index import AllRowsIndex
from sparkext.kernels.indexes.bounds import Bound
from sparkext.kernels.indexes.matches import Cursor, Matches, probe
from sparkext.kernels.indexes.range_index import RangeIndex, RangeKeys
from sparkext.kernels.keys.hashing import FULL_MASK
from sparkext.kernels.keys.normalised import NormalisedKeys, normalise_keys
from sparkext.kernels.runtime.jit import JIT_ENABLED, freeze
from sparkext.plans.adaptive.operator_summary import merge_summaries
from sparkext.plans.adaptive.output_size import BudgetLimits, OutputSizeController
from sparkext.reports.metrics import TaskId, TaskMetrics

pytestmark = pytest.mark.skipif(not JIT_ENABLED, reason="as slow as it is long")

MANY = 50_000  # probe rows, and build rows of one key: 2.5 billion pairs


def recipe(*types: pa.DataType, algorithm: str = "hash", ranges: int = 0) -> IndexRecipe:
    keys, bounds = types[: len(types) - ranges], types[len(types) - ranges :]
    return IndexRecipe(
        tuple(range(len(keys))),
        keys,
        (False,) * len(keys),
        algorithm,
        FULL_MASK,
        bounds=tuple((len(keys) + number, kind) for number, kind in enumerate(bounds)),
    )


def equal(kind: str) -> Matches:
    """Return the matches of `MANY` probe rows, each of which matches `MANY` build rows."""
    if kind == "all rows":
        return AllRowsIndex(MANY).lookup(normalise_keys([pa.array(np.zeros(MANY, dtype=np.int64))], [False]))
    value: Any = b"key" if kind == "bytes" else 1 << 40 if kind == "hash" else 7
    column = pa.array([value] * MANY)
    if kind == "range":
        index, _ = build_index(MANY, [column], recipe(column.type, ranges=1))
        assert isinstance(index, RangeIndex)
        found = index.lookup(RangeKeys(NormalisedKeys(MANY, None, None, None), [[Bound("<=", column)]]))
        assert isinstance(found, Matches)
        return found
    algorithm = "sort_merge" if kind == "ordered" else "auto"
    build = pa.concat_arrays([column, pa.array([-5])]) if kind == "hash" else column
    index, info = build_index(len(build), [build], recipe(column.type, algorithm=algorithm))
    assert index.kind == {"bytes": "hash", "dense": "dense"}.get(kind, kind)
    return index.lookup(normalise_keys([column], [False], info.key_ranges))  # type: ignore[union-attr,arg-type]


@pytest.mark.parametrize("kind", ["dense", "hash", "bytes", "ordered", "all rows", "range"])
def test_more_pairs_than_32_bits_count(kind: str) -> None:
    matches = equal(kind)
    total = MANY * MANY
    assert total > 1 << 31
    assert matches.pairs == matches.output_rows("inner") == matches.output_rows("left") == total
    last = Cursor(MANY - 1, MANY - 3)
    pairs, _ = probe(matches, "inner", last, 100, 3)
    assert pairs.probe_rows is not None and pairs.build_rows is not None
    assert pairs.probe_rows.tolist() == [MANY - 1] * 3
    assert pairs.build_rows.tolist() == [MANY - 3, MANY - 2, MANY - 1]


@pytest.mark.parametrize("rows", [NARROW_ROWS - 1, NARROW_ROWS, NARROW_ROWS + 1])
def test_row_ids_are_as_wide_as_they_have_to_be(rows: int) -> None:
    dtype = row_id_dtype(rows)
    assert np.array([-1, rows - 1], dtype=dtype).tolist() == [-1, rows - 1]
    first = freeze(np.array([0], dtype=dtype))
    matches = Matches(first, freeze(np.array([rows], dtype=dtype)), None, 1, rows)
    pairs, _ = probe(matches, "inner", Cursor(0, rows - 2), 5, 2)
    assert pairs.build_rows is not None and pairs.build_rows.tolist() == [rows - 2, rows - 1]


def test_rows_of_an_index_without_keys() -> None:
    rows = NARROW_ROWS + 5
    matches = AllRowsIndex(rows).lookup(normalise_keys([pa.array([1, 2, 3])], [False]))
    assert matches.pairs == 3 * rows
    pairs, cursor = probe(matches, "left", Cursor(1, rows - 1), 2, 2)
    assert pairs.probe_rows is not None and pairs.build_rows is not None
    assert (pairs.probe_rows.tolist(), pairs.build_rows.tolist()) == ([1, 2], [rows - 1, 0])
    assert cursor == Cursor(2, 1)


def zeros(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return zeros in pages that use no memory until they are written to."""
    return np.zeros(count, dtype=dtype)


def test_a_column_of_more_rows_than_32_bits_count() -> None:
    rows = NARROW_ROWS + 10
    values, bits = zeros(rows, np.int8), zeros((rows + 7) // 8, np.uint8)
    wanted = [0, NARROW_ROWS - 2, NARROW_ROWS - 1, NARROW_ROWS, rows - 1]
    for number, row in enumerate(wanted):
        values[row] = number + 1
        bits[row >> 3] |= 1 << (row & 7)
    nulls = rows - len(wanted)
    array = pa.Array.from_buffers(pa.int8(), rows, [pa.py_buffer(bits), pa.py_buffer(values)], nulls)
    column = Column.of(array)
    ids = freeze(np.array([*wanted, 5, -1], dtype=row_id_dtype(rows)))
    assert column.take(ids, missing=True).to_pylist() == [1, 2, 3, 4, 5, None, None]


def far_texts() -> Column:
    """Return strings around byte 2^31 of their buffer; the first and the third are long."""
    edge = 1 << 31
    ends = [0, edge - 2, edge + 2, 2 * edge, 2 * edge + 3]
    data = zeros(ends[-1], np.uint8)
    for row, text in ((1, b"abcd"), (3, b"xyz")):
        data[ends[row] : ends[row + 1]] = np.frombuffer(text, np.uint8)
    buffers = [None, pa.py_buffer(np.array(ends, dtype=np.int64)), pa.py_buffer(data)]
    return Column.of(pa.Array.from_buffers(pa.large_binary(), 4, buffers))


def test_texts_beyond_what_32_bit_offsets_reach() -> None:
    column = far_texts()
    rows = freeze(np.array([3, 1, -1, 1], dtype=np.int32))
    assert column.take(rows, missing=True).to_pylist() == [b"xyz", b"abcd", None, b"abcd"]
    sizes = np.zeros(2, dtype=np.int64)
    column.add_sizes(freeze(np.array([0, 2], dtype=np.int32)), False, sizes)
    assert sizes.tolist() == [(1 << 31) - 2 + 4, (1 << 31) - 2 + 4]
    with pytest.raises(VarBytesOverflowError):
        column.take(freeze(np.array([0, 2], dtype=np.int32)), missing=False)
    assert column.longest <= MAX_VAR_BYTES


def test_counts_of_a_task_go_on() -> None:
    controller = OutputSizeController([8.0, 8.0], BudgetLimits(1, 1 << 17, 64 << 20, 0.5), lambda: None)
    for _ in range(3):
        assert controller.budget(0).rows == 1 << 17
        controller.observe(0, 1, 1 << 31, None)
        controller.observe(1, 1 << 31, 1 << 31, 1 << 40)
    told = TaskMetrics(TaskId(0, 0, 0), operators=controller.summaries(), rows_in=1 << 33)
    read = TaskMetrics.from_json(told.to_json())
    assert (read.rows_in, read.operators[0]["rows_out"]) == (1 << 33, 3 << 31)
    assert merge_summaries([read.operators] * 2)[1]["rows_in"] == 6 << 31
