"""Bucketing and partitioning against a dictionary of lists."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.keys.normalised import cast_key, normalise_keys
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.partition import (
    MOST_BUCKETS,
    NO_BUCKET,
    Int32Array,
    assign_buckets,
    hash_keys,
    order_by_partition,
)
from tests.support.kernel_inputs import examples

BUCKETS = 64


def buckets(*columns: pa.Array, null_safe: bool = False, count: int = BUCKETS, **options: Any) -> list[int]:
    keys = normalise_keys(columns, [null_safe] * len(columns))
    return list(assign_buckets(keys, hash_keys(keys, **options), count).tolist())


def homes_of(partitions: int) -> Int32Array:
    return freeze(np.arange(BUCKETS, dtype=np.int32) % partitions)


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 5)), max_size=60), st.booleans())
@examples(100)
def test_equal_keys_have_one_bucket(values: list[int | None], null_safe: bool) -> None:
    found = buckets(pa.array(values, pa.int64()), null_safe=null_safe)
    assert all(
        (bucket == NO_BUCKET) is (value is None and not null_safe) for value, bucket in zip(values, found, strict=True)
    )
    assert all(NO_BUCKET <= bucket < BUCKETS for bucket in found)
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
def test_both_sides_have_one_bucket(one: pa.Array, other: pa.Array, common: pa.DataType) -> None:
    assert buckets(cast_key(one, common)) == buckets(cast_key(other, common))
    assert buckets(cast_key(one, common), cast_key(one, common)) == buckets(
        cast_key(other, common), cast_key(other, common)
    )


@pytest.mark.parametrize("keys", [range(50_000), range(0, 50_000 << 20, 1 << 20), [f"key {n}" for n in range(50_000)]])
def test_buckets_are_about_as_long(keys: Any) -> None:
    """The sizes of buckets of distinct keys, in any order, are within five standard deviations."""
    counts = Counter(buckets(pa.array(keys), count=1024))
    mean = 50_000 / 1024
    assert len(counts) == 1024 and all(abs(count - mean) < 5 * mean**0.5 for count in counts.values())


def test_a_mask_of_zero_makes_one_bucket() -> None:
    assert {*buckets(pa.array(range(100)), mask=0)} == {*buckets(pa.array(["a", "b"]), mask=0)} == {0}


@pytest.mark.parametrize("count", [0, -4, 3, 2 * MOST_BUCKETS])
def test_numbers_of_buckets(count: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        buckets(pa.array([1]), count=count)
    assert buckets(pa.array([1, 2]), count=1) == [0, 0]


@given(
    st.lists(st.integers(NO_BUCKET, BUCKETS - 1), max_size=80),
    st.sampled_from([1, 2, 7, 63, 64, 100]),
    st.one_of(st.none(), st.just(0)),
)
@examples(100)
def test_rows_of_partitions(of_rows: list[int], partitions: int, nowhere: int | None) -> None:
    order = order_by_partition(freeze(np.array(of_rows, dtype=np.int32)), homes_of(partitions), partitions, nowhere)
    expected: list[list[int]] = [[] for _ in range(partitions)]
    for row, bucket in enumerate(of_rows):
        partition = nowhere if bucket == NO_BUCKET else bucket % partitions
        if partition is not None:
            expected[partition].append(row)
    assert order.starts.size == partitions + 1
    assert [order.rows[order.starts[n] : order.starts[n + 1]].tolist() for n in range(partitions)] == expected
