"""Whether an expression may fail, derived from the smallest and largest values of its columns by interval arithmetic.

    a in [0, 90], b in [3, 7]        a - b in [-7, 87]     fits an int8
                                     100 + a in [100, 190]  does not: 100 + 28 fails

A few steps cover all pairs of rows at once, even millions of pairs. The test never misses an error. It may report an
error that no pair has, because it ignores the conditions around a subexpression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparkext.plans.expressions.expression import ColumnPlace, Expression
from sparkext.plans.expressions.number_types import parse_unscaled

Interval = tuple[float, float] | None
"""The smallest and the largest value, as `int` for integers and unscaled decimals; None if unknown, as for most floats.
"""

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def may_fail(expression: Expression, extents: Mapping[ColumnPlace, Interval]) -> bool:
    """Return whether a `checked` node may overflow or divide by 0, for column values within these extents."""
    intervals = _IntervalEvaluator(extents)
    intervals.of(expression)
    return intervals.failing


class _IntervalEvaluator:
    def __init__(self, extents: Mapping[ColumnPlace, Interval]) -> None:
        self._extents = extents
        self.failing = False

    def of(self, node: Expression) -> Interval:
        """Return the interval of a node's values, and set `failing` if the node may fail."""
        if node.op == "column":
            return self._extents[node.place]
        if node.op == "literal":
            return _evaluate_literal(node)
        args = [self.of(argument) for argument in node.args]
        if node.op in ("/", "%"):
            return self._divide(node, args[0], args[1])
        if node.number == "bool":
            return 0, 1
        if node.op in ("if", "coalesce", "least", "greatest"):
            return _hull(args[1:] if node.op == "if" else args)
        if node.number not in _BITS:
            return args[0] if node.op == "cast" and node.args[0].scale == 0 else None
        if node.op in ("cast", "+", "-"):
            args = [
                _scale_interval(part, node.scale - argument.scale)
                for part, argument in zip(args, node.args, strict=True)
            ]
        known_intervals = [argument for argument in args if argument is not None]
        return (
            self._fit(node, _CALCULATED[node.op](*known_intervals))
            if len(known_intervals) == len(args)
            else _find_type_range(node.number)
        )

    def _divide(self, node: Expression, dividend: Interval, divisor: Interval) -> Interval:
        if node.checked and (divisor is None or divisor[0] <= 0 <= divisor[1]):
            self.failing = True
        if node.number not in _BITS or dividend is None:
            return None
        return min(dividend[0], 0), max(dividend[1], 0)

    def _fit(self, node: Expression, interval: tuple[float, float]) -> Interval:
        least, most = _find_type_range(node.number)
        if least <= interval[0] and interval[1] <= most:
            return interval
        self.failing |= node.checked
        return least, most


def _evaluate_literal(node: Expression) -> Interval:
    if node.text is None or node.number == "bool":
        return 0, 1
    value = parse_unscaled(node.text, node.scale) if node.number in _BITS else float(node.text)
    return None if value != value else (value, value)


def _scale_interval(interval: Interval, places: int) -> Interval:
    """Return the interval of unscaled digits after `places` more decimal places are added."""
    return None if interval is None else (interval[0] * 10**places, interval[1] * 10**places)


def _find_type_range(kind: str) -> tuple[int, int]:
    bound = 1 << (_BITS[kind] - 1)
    return -bound, bound - 1


def _hull(intervals: list[Interval]) -> Interval:
    known_intervals = [interval for interval in intervals if interval is not None]
    if len(known_intervals) < len(intervals):
        return None
    return min(low for low, _ in known_intervals), max(high for _, high in known_intervals)


def _multiply_intervals(left: tuple[float, float], right: tuple[float, float]) -> tuple[float, float]:
    corners = [first * second for first in left for second in right]
    return min(corners), max(corners)


def _take_absolute(interval: tuple[float, float]) -> tuple[float, float]:
    low, high = interval
    return max(low, -high, 0), max(-low, high)


_CALCULATED: dict[str, Callable[..., tuple[float, float]]] = {
    "+": lambda left, right: (left[0] + right[0], left[1] + right[1]),
    "-": lambda left, right: (left[0] - right[1], left[1] - right[0]),
    "*": _multiply_intervals,
    "negate": lambda interval: (-interval[1], -interval[0]),
    "abs": _take_absolute,
    "cast": lambda interval: interval,
}
