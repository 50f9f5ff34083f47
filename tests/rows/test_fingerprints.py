"""Hashes of rows: equal exactly if the rows are equal."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from sparkext.rows.fingerprints import hash_row_contents

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "number": (pa.int32(), [None, 0, -1, 7]),
    "double": (pa.float64(), [None, 0.0, -0.0, float("nan"), 1.5]),
    "float": (pa.float32(), [None, 0.0, -0.0, float("nan"), 1.5]),
    "wide": (pa.decimal128(38, 0), [None, 0, 10**30, -(10**30)]),
    "text": (pa.string(), [None, "", "a", "ab"]),
    "list": (pa.list_(pa.int64()), [None, [], [None], [0], [1, 2], [2, 1], [1, 2, None]]),
    "struct": (pa.struct({"a": pa.int64(), "b": pa.string()}), [None, {}, {"a": 1}, {"b": "1"}, {"a": 1, "b": "1"}]),
    "map": (pa.map_(pa.string(), pa.int64()), [None, [], [("k", 1)], [("k", 2)], [("l", 1)], [("k", None)]]),
    "deep": (
        pa.list_(pa.struct({"x": pa.list_(pa.string())})),
        [None, [], [None], [{"x": None}], [{"x": []}], [{"x": [""]}], [{"x": ["", ""]}], [{"x": [""]}, {"x": [""]}]],
    ),
    "nothing": (pa.null(), [None]),
}


def column(name: str, values: list[Any]) -> pa.Array:
    return pa.array(values, TYPES[name][0])


@pytest.mark.parametrize("name", TYPES)
def test_each_value_has_a_hash_of_its_own(name: str) -> None:
    values = TYPES[name][1]
    hashes = hash_row_contents([column(name, values)], len(values)).tolist()
    assert len(set(hashes)) == len(values)
    again = hash_row_contents([column(name, [None, *values, *values]).slice(1)], 2 * len(values)).tolist()
    assert again == hashes * 2, "wherever it lies"


def test_rows_of_all_types() -> None:
    draw = random.Random(0)
    rows = [tuple(draw.choice(values) for _, values in TYPES.values()) for _ in range(2_000)]
    columns = [column(name, [row[number] for row in rows]) for number, name in enumerate(TYPES)]
    hashes = hash_row_contents(columns, len(rows)).tolist()
    told = {}
    for row, one in zip(rows, hashes, strict=True):
        assert told.setdefault(one, repr(row)) == repr(row)
    assert len(told) == len({repr(row) for row in rows}) > 1_500


def test_no_columns_and_no_rows() -> None:
    assert hash_row_contents([], 3).tolist() == [0, 0, 0]
    assert hash_row_contents([column(name, []) for name in TYPES], 0).size == 0
