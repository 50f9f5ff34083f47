"""Bucketing and partitioning (`lines`, `slots` in the code) against a dictionary of lists."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.keys.normalised import cast_key, normalise_keys
from sparkext.kernels.runtime.jit import frozen
from sparkext.kernels.shuffle.partition import MOST_LINES, NO_LINE, Int32Array, hashes_of, lines_of, slot_order
from tests.kernels.support import examples

LINES = 64


def lines(*columns: pa.Array, null_safe: bool = False, count: int = LINES, **options: Any) -> list[int]:
    keys = normalise_keys(columns, [null_safe] * len(columns))
    return list(lines_of(keys, hashes_of(keys, **options), count).tolist())


def homes_of(slots: int) -> Int32Array:
    return frozen(np.arange(LINES, dtype=np.int32) % slots)


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 5)), max_size=60), st.booleans())
@examples(100)
def test_equal_keys_have_one_line(values: list[int | None], null_safe: bool) -> None:
    found = lines(pa.array(values, pa.int64()), null_safe=null_safe)
    assert all(
        (line == NO_LINE) is (value is None and not null_safe) for value, line in zip(values, found, strict=True)
    )
    assert all(NO_LINE <= line < LINES for line in found)
    assert len({*zip(values, found, strict=True)}) == len({*values})


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (pa.array([-1, 5, None], pa.int8()), pa.array([-1, 5, None], pa.int64()), pa.int64()),
        (pa.array([0, 3], pa.int32()), pa.array([-0.0, 3.0]), pa.float64()),
        (pa.array(["a", "", None, "é" * 40]), pa.array(["a", "", None, "é" * 40], pa.large_string()), pa.string()),
        (pa.array([1, 2], pa.decimal128(5, 2)), pa.array([1, 2], pa.decimal128(30, 4)), pa.decimal128(32, 4)),
        (pa.array([True, False]), pa.array([False, True, False])[1:], pa.bool_()),
    ],
    ids=str,
)
def test_both_sides_have_one_line(one: pa.Array, other: pa.Array, common: pa.DataType) -> None:
    assert lines(cast_key(one, common)) == lines(cast_key(other, common))
    assert lines(cast_key(one, common), cast_key(one, common)) == lines(
        cast_key(other, common), cast_key(other, common)
    )


@pytest.mark.parametrize("keys", [range(50_000), range(0, 50_000 << 20, 1 << 20), [f"key {n}" for n in range(50_000)]])
def test_lines_are_about_as_long(keys: Any) -> None:
    """The sizes of buckets of distinct keys, in any order, are within five standard deviations."""
    counts = Counter(lines(pa.array(keys), count=1024))
    mean = 50_000 / 1024
    assert len(counts) == 1024 and all(abs(count - mean) < 5 * mean**0.5 for count in counts.values())


def test_a_mask_of_zero_makes_one_line() -> None:
    assert {*lines(pa.array(range(100)), mask=0)} == {*lines(pa.array(["a", "b"]), mask=0)} == {0}


@pytest.mark.parametrize("count", [0, -4, 3, 2 * MOST_LINES])
def test_numbers_of_lines(count: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        lines(pa.array([1]), count=count)
    assert lines(pa.array([1, 2]), count=1) == [0, 0]


@given(
    st.lists(st.integers(NO_LINE, LINES - 1), max_size=80),
    st.sampled_from([1, 2, 7, 63, 64, 100]),
    st.one_of(st.none(), st.just(0)),
)
@examples(100)
def test_rows_of_slots(of_rows: list[int], slots: int, nowhere: int | None) -> None:
    order = slot_order(frozen(np.array(of_rows, dtype=np.int32)), homes_of(slots), slots, nowhere)
    expected: list[list[int]] = [[] for _ in range(slots)]
    for row, line in enumerate(of_rows):
        slot = nowhere if line == NO_LINE else line % slots
        if slot is not None:
            expected[slot].append(row)
    assert order.starts.size == slots + 1
    assert [order.rows[order.starts[n] : order.starts[n + 1]].tolist() for n in range(slots)] == expected
