"""Comparisons by Spark's rules, and the build rows in the range of a probe row."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compares(op: str, left: Any, right: Any) -> bool:
    """Return `left op right`: false for null; NaN is the largest value and equals itself; -0.0 equals 0.0."""
    if left is None or right is None:
        return False
    return _OPERATORS[op](_orderable(left), _orderable(right))


def _orderable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def in_range(build: Sequence[Sequence[Any]], probe: Sequence[Sequence[tuple[str, Any]]], row: int) -> bool:
    """Return whether build row `row` satisfies all comparisons `build op value` of one probe row, per build column."""
    return all(
        compares(op, column[row], value) for column, bounds in zip(build, probe, strict=True) for op, value in bounds
    )
