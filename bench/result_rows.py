"""The rows of a query as different engines return them: in another order, and with averages rounded in another way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

_RELATIVE, _ABSOLUTE = 1e-6, 1.1e-6
"""Spark rounds quotients of decimals to six digits after the point; DataFusion cuts them off there, which may differ by
one in the last; others return a binary fraction."""


class ResultRows:
    """Rows that equal others if these are as many, in whatever order, and fractions are the same to six digits.

    `rows` hold what the engines' Python clients return: None, numbers, text, dates.
    """

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        self._rows = sorted((tuple(map(plain, row)) for row in rows), key=_place)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResultRows):
            return NotImplemented
        return len(self._rows) == len(other._rows) and all(map(_alike, self._rows, other._rows))

    __hash__ = None  # type: ignore[assignment]  # what is nearly the same has no hash

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self._rows[:3]))
        return f"{len(self._rows)} rows: {shown}{', …' * (len(self._rows) > 3)}"


def plain(value: Any) -> Any:
    """What JSON holds: whole decimals stay exact."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, date) else value


def _place(row: tuple[Any, ...]) -> tuple[tuple[bool, Any], ...]:
    """Where a row is sorted: rows that are the same to five digits have one place."""
    return tuple((value is not None, _rough(value)) for value in row)


def _rough(value: Any) -> Any:
    if value is None:
        return 0
    return float(f"{value:.5g}") if isinstance(value, (int, float)) else value


def _alike(row: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(row) == len(other) and all(map(_same, row, other))


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, float) or isinstance(other, float):
        return None not in (value, other) and math.isclose(value, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return bool(value == other)
