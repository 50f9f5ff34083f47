"""Rows of different engines are equal apart from their order and the rounding of fractions."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from bench.engines.result_rows import ResultRows


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([], []),
        ([(1, "a"), (2, None)], [(2, None), (1, "a")]),
        ([(None, 1.0), (1.5, 2.0)], [(1.5, 2.0), (None, 1.0)]),
        ([(Decimal("0.049985"),)], [(0.0499853,)]),
        ([(Decimal("0.050002"),)], [(Decimal("0.050001"),)]),
        ([(Decimal("12.00"),)], [(12,)]),
        ([(date(1995, 3, 15),)], [("1995-03-15",)]),
        ([(1 / 3, "a"), (2 / 3, "b")], [(0.666667, "b"), (0.333333, "a")]),
        ([(2**63 + 1,)], [(Decimal(2**63 + 1),)]),
    ],
)
def test_the_same_rows(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> None:
    assert ResultRows(one) == ResultRows(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([], [(1,)]),
        ([(1,), (1,)], [(1,)]),
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)]),
        ([(1, "a")], [(1, "b")]),
        ([(1,)], [(1, 1)]),
        ([(None,)], [(0,)]),
        ([(None,)], [(0.0,)]),
        ([(0.05,)], [(0.0501,)]),
        ([(2**63 + 1,)], [(Decimal(2**63 + 2),)]),
    ],
)
def test_other_rows(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> None:
    assert ResultRows(one) != ResultRows(other)


def test_a_long_result_is_shown_in_short() -> None:
    assert str(ResultRows((number, "x") for number in range(100))) == ("100 rows: (0, 'x'), (1, 'x'), (2, 'x'), …")
