"""The checksum with which Spark detects whether a repeated task sends the same rows."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pytest

from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.shuffle.partitioning import Partitioning

ROWS = pa.record_batch(
    {
        "id": [1, 2, 3, None],
        "name": ["a", None, "", "b"],
        "price": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal(2), None], pa.decimal128(38, 2)),
        "flag": [True, False, None, True],
        "nothing": pa.nulls(4),
        "nested": [[1], [], None, [2]],
    }
)
OTHERS = {
    "id": [1, 2, 3, 4],
    "name": ["a", "", None, "b"],
    "flag": [True, True, None, True],
    "nested": [[1], None, [], [2]],
}


def checksum(rows: pa.RecordBatch, *keys: int) -> int:
    types = tuple(rows.schema.field(key).type for key in keys)
    partitioning = Partitioning(keys, types, (False,) * len(keys), RoutingTable(8, 1), True, -1 & (1 << 64) - 1)
    return partitioning.checksum(rows, partitioning.buckets(rows)[0])


@pytest.mark.parametrize("keys", [(), (0,), (1, 3)])
def test_rows_in_another_order_are_the_same(keys: tuple[int, ...]) -> None:
    turned = ROWS.take(pa.array([2, 0, 3, 1]))
    assert checksum(turned, *keys) == checksum(ROWS, *keys) != 0


@pytest.mark.parametrize("column", OTHERS)
def test_other_rows_without_keys(column: str) -> None:
    other = ROWS.set_column(ROWS.schema.get_field_index(column), column, pa.array(OTHERS[column]))
    assert checksum(other) != checksum(ROWS)
    assert checksum(ROWS.slice(1)) != checksum(ROWS)
