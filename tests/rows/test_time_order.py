"""Time order: equal to that of a slow sort, for rows in any order, and for sorted runs of them."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkext.kernels.runtime.jit import freeze
from sparkext.rows.time_order import TimeOrder

KINDS = {"us": pa.timestamp("us"), "UTC": pa.timestamp("us", "UTC"), "ns": pa.timestamp("ns")}


def table(draw: random.Random, rows: int, times: int, kind: pa.DataType, nulls: float = 0.0) -> pa.Table:
    start = datetime(1969, 12, 31)

    def or_null(value: Any) -> Any:
        return None if draw.random() < nulls else value

    at = [or_null(start + timedelta(seconds=draw.randrange(times))) for _ in range(rows)]
    return pa.table(
        {
            "name": pa.array([or_null(draw.choice("abc")) for _ in range(rows)], pa.string()),
            "at": pa.array(at, kind),
            "n": pa.array(draw.sample(range(rows), rows), pa.int64()),
        }
    )


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["at"] is not None, row["at"], row["name"] is None, row["name"], row["n"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [0, 1, 2, 1000])
def test_ties_by_a_column(kind: str, rows: int) -> None:
    draw = random.Random(rows)
    for times, nulls in ((1, 0.0), (10, 0.3), (10**6, 1.0)):
        given = table(draw, rows, times, KINDS[kind], nulls)
        order = TimeOrder(3, 1, ties=0).order(given)
        in_order = given.take(pa.array(order)).to_pylist()
        expected = sorted(given.to_pylist(), key=lambda row: key(row)[:4])
        assert [key(row)[:4] for row in in_order] == [key(row)[:4] for row in expected]


@pytest.mark.parametrize("ties", [None, 0])
def test_the_same_from_any_order(ties: int | None) -> None:
    draw, order = random.Random(1), TimeOrder(3, 1, ties)
    given = table(draw, 500, 20, KINDS["us"], 0.1)
    expected = given.take(pa.array(order.order(given)))
    for runs in (1, 2, 5):
        shuffled = given.take(draw.sample(range(500), 500))
        assert shuffled.take(pa.array(order.order(shuffled))) == expected
        cuts = [0, *sorted(draw.sample(range(500), runs - 1)), 500]
        parts = [shuffled.slice(low, high - low) for low, high in pairwise(cuts)]
        sorted_parts = pa.concat_tables([part.take(pa.array(order.order(part))) for part in parts])
        starts = freeze(np.array(cuts, dtype=np.int64))
        assert sorted_parts.take(pa.array(order.order(sorted_parts, starts))) == expected


def test_a_number_orders_what_is_left() -> None:
    """Rows with the same number retain their order."""
    at = pa.array([1, 1, 1, 0, 1], pa.timestamp("us"))
    given = pa.table({"at": at, "rank": pa.array([5, -3, 5, 9, -3])})
    assert TimeOrder(1, 0, rank=1).order(given).tolist() == [3, 1, 4, 0, 2]
