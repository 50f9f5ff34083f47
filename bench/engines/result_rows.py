"""Compares the rows of a query between engines, which differ in the order of rows and in the rounding of averages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

_RELATIVE, _ABSOLUTE = 1e-6, 1.1e-6
"""Tolerances: Spark rounds quotients of decimals to six digits after the point. DataFusion truncates them, so the last
digit may differ by one; other engines return binary fractions."""


class ResultRows:
    """Rows that equal other rows in any order if their fractions are the same to six digits.

    `rows` have the values that the engines' Python clients return: None, numbers, text, dates.
    """

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        self._rows = sorted((tuple(map(plain, row)) for row in rows), key=_place)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResultRows):
            return NotImplemented
        return len(self._rows) == len(other._rows) and all(map(_alike, self._rows, other._rows))

    __hash__ = None  # type: ignore[assignment]  # approximate equality allows no hash

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self._rows[:3]))
        return f"{len(self._rows)} rows: {shown}{', …' * (len(self._rows) > 3)}"


def plain(value: Any) -> Any:
    """Convert a value to a type of JSON. Decimals without a fraction stay exact."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, date) else value


def _place(row: tuple[Any, ...]) -> tuple[tuple[bool, Any], ...]:
    """Return the sort key of a row: rows that are equal to five digits have the same key."""
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
