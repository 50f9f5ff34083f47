"""Rows in Spark's order, compared with an explicit comparison of two values."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkext.rows.row_order import compare_to_bound, select_first_rows, split_into_parts

NAN = float("nan")
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, -1, 0, 127]),
    "int32": (pa.int32(), [-(2**31), -1, 0, 5, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), -1, 0, 5, 2**63 - 1]),
    "float": (pa.float32(), [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, NAN, -NAN]),
    "double": (pa.float64(), [-math.inf, -1e300, -5e-324, -0.0, 0.0, 5e-324, math.inf, NAN, -NAN]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-1.00"), Decimal("0.01"), Decimal("9999999.99")]),
    "long decimal": (
        pa.decimal128(38, 0),
        [Decimal(sign * value) for sign in (-1, 1) for value in (0, 1, 2**63, 2**64 - 1, 2**64, 10**38 - 1)],
    ),
    "date": (pa.date32(), [-719162, 0, 19000]),
    "timestamp": (pa.timestamp("us", tz="UTC"), [-1, 0, 2**60]),
    "time": (pa.time64("ns"), [0, 1000, 86_399_999_999_000]),
    "interval": (pa.duration("us"), [-(2**62), 0, 2**62]),
    "string": (pa.string(), ["", "a", "a\0", "ab", "é", "\U0001f600", "￿", "Z"]),
    "large string": (pa.large_string(), ["", "a", "b" * 40]),
    "binary": (pa.binary(), [b"", b"\0", b"\x7f", b"\x80", b"\xff", b"\xff\0"]),
}


def rows_of(name: str, count: int, nulls: float, seed: int = 5) -> tuple[pa.Array, list[Any]]:
    """Return a column with an offset into its buffers, and its values."""
    arrow_type, values = VALUES[name]
    rng = np.random.default_rng(seed)
    some = [None if rng.random() < nulls else values[number] for number in rng.integers(0, len(values), count + 3)]
    return pa.array(some, arrow_type)[3:], some[3:]


def order_of(one: Any, other: Any, ascending: bool, nulls_first: bool) -> int:
    """Compare like Spark: less than 0 if `one` comes first."""
    if one is None or other is None:
        return ((other is None) - (one is None)) * (1 if nulls_first else -1)
    return _compared(one, other) * (1 if ascending else -1)


def _compared(one: Any, other: Any) -> int:
    if isinstance(one, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) - math.isnan(other)
    elif isinstance(one, str):
        one, other = one.encode(), other.encode()
    return (one > other) - (one < other)


@pytest.mark.parametrize("nulls", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("name", VALUES)
def test_one_column(name: str, nulls: float) -> None:
    column, values = rows_of(name, 60, nulls)
    for ascending in (True, False):
        for nulls_first in (True, False):
            parts = split_into_parts(column, ascending, nulls_first)
            for count in (1, 7, 59, 60):
                _, bound = select_first_rows(parts, count)
                key = cmp_to_key(lambda a, b: order_of(a, b, ascending, nulls_first))
                last = sorted(values, key=key)[count - 1]
                before, equal = compare_to_bound(parts, bound)
                found = [order_of(value, last, ascending, nulls_first) for value in values]
                assert before.tolist() == [order < 0 for order in found]
                assert [e for b, e in zip(before, equal, strict=True) if not b] == [o == 0 for o in found if o >= 0]


@pytest.mark.parametrize("count", [1, 2, 50, 199, 200])
@pytest.mark.parametrize(
    "names", [("bool", "string", "double"), ("long decimal", "int8"), ("string", "binary", "date")]
)
def test_first_rows_by_several_columns(names: tuple[str, ...], count: int) -> None:
    ways = [(True, True), (False, False), (False, True)]
    columns, values = zip(*(rows_of(name, 200, 0.2, seed) for seed, name in enumerate(names)), strict=True)
    parts = [part for column, way in zip(columns, ways, strict=False) for part in split_into_parts(column, *way)]

    def order(one: int, other: int) -> int:
        signs = (order_of(some[one], some[other], *way) for some, way in zip(values, ways, strict=False))
        return next((sign for sign in signs if sign), 0)

    found, bound = select_first_rows(parts, count)
    assert found.tolist() == sorted(set(found.tolist())) and found.size == count
    wanted = sorted(range(200), key=cmp_to_key(order))
    got = sorted(found.tolist(), key=cmp_to_key(order))
    assert all(order(a, b) == 0 for a, b in zip(got, wanted[:count], strict=True))
    before, _ = compare_to_bound(parts, bound)
    assert before.tolist() == [order(row, wanted[count - 1]) < 0 for row in range(200)]
