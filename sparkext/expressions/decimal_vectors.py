"""Arithmetic of decimals, exact as in Spark.

It computes with machine words if the extremes of a batch prove that nothing overflows, else with Python integers:

    l_extendedprice * (1 - l_discount)      90104..10494950 at scale 2
                                          * 90..100         at scale 2, from 1.00 - 0.00..0.10
                                          = 8109360..1049495000 at scale 4: fits a word, and the result's type

The exact result is rounded half up to the scale of its type. If it exceeds the precision, it is null or an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sparkext.expressions.vectors import (
    Interval,
    Mask,
    Vector,
    combine_known,
    find_extremes,
    find_zero_divisors,
    intersect_masks,
    unite_masks,
    where_true,
)
from sparkext.kernels.columns.buffers import allocate_array
from sparkext.kernels.runtime.jit import AnyArray
from sparkext.plans.expressions.expression import Expression

_WORD = (1 << 63) - 1
_MOST_PLACES = 18  # 10^18 is the last power of ten that fits a word
_EXACT_DOUBLES = 1 << 53
_MOST_EXACT_POWER = 22  # 10^22 is the last power of ten that is a double
_UFUNCS: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply}
_EXACT = {"plus": "+", "minus": "-", "times": "*"}
_INTERVALS: dict[str, Callable[[Interval, Interval], Interval]] = {
    "+": lambda left, right: (left[0] + right[0], left[1] + right[1]),
    "-": lambda left, right: (left[0] - right[1], left[1] - right[0]),
    "*": lambda left, right: _enclose_values([first * second for first in left for second in right]),
}


def combine_intervals(op: str, left: Interval, right: Interval) -> Interval:
    """Return bounds of sums, differences or products of numbers within the given bounds."""
    return _INTERVALS[op](left, right)


def combine_decimals(node: Expression, left: Vector, right: Vector) -> Vector:
    """Add, subtract or multiply decimals."""
    known, failed = combine_known([left, right])
    op = _EXACT.get(node.op, node.op)
    scales = [argument.scale for argument in node.args]
    scale = sum(scales) if op == "*" else max(scales)
    left_places, right_places = (0, 0) if op == "*" else (scale - argument_scale for argument_scale in scales)

    def on_words(left_bounds: Interval, right_bounds: Interval) -> Interval | None:
        parts = _scale_bounds(left_bounds, left_places), _scale_bounds(right_bounds, right_places)
        result = combine_intervals(op, *parts)
        return (
            result
            if max(left_places, right_places) <= _MOST_PLACES and all(map(_fits_word, (*parts, result)))
            else None
        )

    def compute(left_digits: AnyArray, right_digits: AnyArray) -> AnyArray:
        return _apply_ufunc(
            _UFUNCS[op], _shift_digits(left_digits, left_places), _shift_digits(right_digits, right_places)
        )

    data, within = _compute_with_bounds(on_words, compute, left, right)
    return _fit_to_type(node, Vector(data, known, failed, within), scale)


def divide_decimals(node: Expression, left: Vector, right: Vector) -> Vector:
    """Divide decimals: null, or an error, if the divisor is 0."""
    divisor, known, failed = _replace_zero_divisors(node, left, right)
    places = node.scale - node.args[0].scale + node.args[1].scale
    left_places, right_places = max(places, 0), max(-places, 0)

    def on_words(left_bounds: Interval, right_bounds: Interval) -> Interval | None:
        above = _measure_magnitude(_scale_bounds(left_bounds, left_places))
        below = _measure_magnitude(_scale_bounds(right_bounds, right_places))
        return (
            (-above, above) if max(left_places, right_places) <= _MOST_PLACES and 2 * (above + below) <= _WORD else None
        )

    def compute(left_digits: AnyArray, right_digits: AnyArray) -> AnyArray:
        """Return quotients rounded half up: away from zero."""
        above, below = _shift_digits(left_digits, left_places), _shift_digits(right_digits, right_places)
        size = np.asarray((2 * np.abs(above) + np.abs(below)) // (2 * np.abs(below)), dtype=above.dtype)
        return np.asarray(np.where((above < 0) != (below < 0), -size, size), dtype=above.dtype)

    data, within = _compute_with_bounds(on_words, compute, left, divisor)
    return _fit_to_type(node, Vector(data, known, failed, within), node.scale)


def compute_decimal_remainder(node: Expression, left: Vector, right: Vector) -> Vector:
    """Return remainders of decimals, with the sign of the dividend; for `pmod`, (r + n) % n if r < 0."""
    divisor, known, failed = _replace_zero_divisors(node, left, right)
    scale = max(argument.scale for argument in node.args)
    left_places, right_places = (scale - argument.scale for argument in node.args)

    def on_words(left_bounds: Interval, right_bounds: Interval) -> Interval | None:
        above = _measure_magnitude(_scale_bounds(left_bounds, left_places))
        below = _measure_magnitude(_scale_bounds(right_bounds, right_places))
        return (
            (-below, below) if max(left_places, right_places) <= _MOST_PLACES and above + 2 * below <= _WORD else None
        )

    def compute(left_digits: AnyArray, right_digits: AnyArray) -> AnyArray:
        # numpy turns zero-dimensional results into Python integers, and treats these as machine words.
        above, below = np.atleast_1d(_shift_digits(left_digits, left_places), _shift_digits(right_digits, right_places))
        rest = _compute_remainder(above, below)
        if node.op == "pmod":
            rest = np.where(rest < 0, _compute_remainder(rest + below, below), rest)
        return rest.reshape(np.broadcast_shapes(left_digits.shape, right_digits.shape))

    data, within = _compute_with_bounds(on_words, compute, left, divisor)
    return _fit_to_type(node, Vector(data, known, failed, within), scale)


def _replace_zero_divisors(node: Expression, left: Vector, right: Vector) -> tuple[Vector, Mask, Mask]:
    """Return a divisor without zeros, and masks of known and failed rows."""
    zero, known, failed = find_zero_divisors(node, left, right)
    divisor = replace(right, data=np.where(zero, 1, right.data), within=_enclose_values([*right.bounds, 1]))
    return divisor, known, failed


def _compute_remainder(above: AnyArray, below: AnyArray) -> AnyArray:
    """Return the remainder of a division that truncates towards zero."""
    size = np.abs(above) % np.abs(below)
    return np.asarray(np.where(above < 0, -size, size), dtype=above.dtype)


def round_decimals(node: Expression, operand: Vector) -> Vector:
    """Round decimals half up or half to even to the given number of places, or by `floor` or `ceil` to scale 0."""
    scale = node.args[0].scale
    places = int(node.args[1].text or "") if len(node.args) > 1 else 0
    if places >= scale:
        return _fit_to_type(node, operand, scale)
    vector = _lower_scale(operand, scale - places, _ROUNDING[node.op])
    if places < 0:
        vector = _raise_scale(vector, -places)
    return _fit_to_type(node, vector, max(places, 0))


def drop_places(data: AnyArray, places: int) -> AnyArray:
    """Return digits without their last `places` ones, truncated towards zero."""
    unit = 10**places
    if data.dtype != object and places > _MOST_PLACES:
        return np.zeros_like(data)
    if data.dtype != object and (data < -_WORD).any():
        data = data.astype(object)
    flat = data.reshape(-1)
    size = np.abs(flat) // unit
    return np.asarray(np.where(flat < 0, -size, size), dtype=data.dtype).reshape(data.shape)


def change_decimal_sign(op: str, operand: Vector) -> Vector:
    """Return negated or absolute decimals."""
    low, high = operand.bounds
    # The negation of the smallest word does not fit a word.
    data = operand.data if _fits_word((low, high)) else operand.data.astype(object)
    within = (-high, -low) if op == "negate" else (max(low, -high, 0), _measure_magnitude((low, high)))
    signed = np.asarray((np.negative if op == "negate" else np.abs)(data), dtype=data.dtype)
    return replace(operand, data=signed, within=within)


def to_decimal(node: Expression, operand: Vector) -> Vector:
    """Convert decimals or integers to decimals of another type."""
    return _fit_to_type(node, replace(operand, data=_convert_to_int64(operand.data)), node.args[0].scale)


def extract_digits(operand: Vector) -> Vector:
    """Return the unscaled digits of decimals that fit words."""
    return replace(operand, data=_convert_to_int64(operand.data))


def _convert_to_int64(data: AnyArray) -> AnyArray:
    return data if data.dtype == object else data.astype(np.int64, copy=False)


def to_double(operand: Vector, scale: int) -> Vector:
    """Return the doubles nearest to decimals, as Java computes them."""
    data = operand.data
    if data.dtype != object and scale <= _MOST_EXACT_POWER and _measure_magnitude(operand.bounds) <= _EXACT_DOUBLES:
        return Vector(data.astype(np.float64) / float(10**scale), operand.known, operand.failed)
    # Python, too, rounds the quotient of two integers only once.
    return Vector(np.asarray(data.astype(object) / 10**scale, dtype=np.float64), operand.known, operand.failed)


def _compute_with_bounds(
    on_words: Callable[[Interval, Interval], Interval | None],
    compute: Callable[[AnyArray, AnyArray], AnyArray],
    left: Vector,
    right: Vector,
) -> tuple[AnyArray, Interval | None]:
    """Compute a result, and return its bounds if they are known.

    `on_words`: given bounds of the arguments, returns bounds of the result, or None if an intermediate value may exceed
    a word. It is tried with the known bounds, then with the extremes of the values. If both fail, Python integers of
    any length are used.
    """
    if left.data.dtype != object and right.data.dtype != object:
        within = on_words(left.bounds, right.bounds)
        if within is None:
            within = on_words(find_extremes(left.data), find_extremes(right.data))
        if within is not None:
            return compute(left.data, right.data), within
    return compute(left.data.astype(object), right.data.astype(object)), None


def _fit_to_type(node: Expression, exact: Vector, scale: int) -> Vector:
    """Convert exact results with this scale to the node's type."""
    assert node.type is not None, "decimals have a type"
    vector = exact
    if node.scale > scale:
        vector = _raise_scale(vector, node.scale - scale)
    elif node.scale < scale:
        vector = _lower_scale(vector, scale - node.scale)
    most = 10**node.type.precision - 1
    if _measure_magnitude(vector.bounds) > most:
        vector = vector.measured()
    if _measure_magnitude(vector.bounds) <= most:
        return _narrow_to_words(vector)
    overflows = where_true(Vector(np.asarray((vector.data > most) | (vector.data < -most), np.bool_), vector.known))
    data = np.where(overflows, 0, vector.data) if vector.data.dtype == object else vector.data
    if node.checked:
        return _narrow_to_words(Vector(data, vector.known, unite_masks(vector.failed, overflows)))
    return _narrow_to_words(Vector(data, intersect_masks(vector.known, ~overflows), vector.failed))


def _narrow_to_words(vector: Vector) -> Vector:
    """Convert Python integers to words if all of them fit."""
    if vector.data.dtype != object:
        return vector
    bounds = find_extremes(vector.data)
    data = vector.data.astype(np.int64) if _fits_word(bounds) else vector.data
    return replace(vector, data=data, within=bounds)


def _raise_scale(vector: Vector, places: int) -> Vector:
    """Return numbers with `places` more decimal places."""
    bounds = _scale_bounds(vector.bounds, places)
    if vector.data.dtype != object and not _fits_word(bounds):
        vector = vector.measured()
        bounds = _scale_bounds(vector.bounds, places)
    data = vector.data if places <= _MOST_PLACES and _fits_word(bounds) else vector.data.astype(object)
    return replace(vector, data=_shift_digits(data, places), within=bounds)


def _round_half_up(data: AnyArray, unit: int) -> AnyArray:
    """Round ties away from zero."""
    size = (np.abs(data) + unit // 2) // unit
    return np.where(data < 0, -size, size)


def _round_half_even(data: AnyArray, unit: int) -> AnyArray:
    below = data // unit
    twice = 2 * (data - below * unit)
    return np.asarray(below + ((twice > unit) | ((twice == unit) & (below % 2 == 1))), dtype=data.dtype)


_Rounding = Callable[[AnyArray, int], AnyArray]
_ROUNDING: dict[str, _Rounding] = {
    "round": _round_half_up,
    "round_even": _round_half_even,
    "floor": lambda data, unit: data // unit,
    "ceil": lambda data, unit: -(-data // unit),
}


def _lower_scale(vector: Vector, places: int, rounding: _Rounding = _round_half_up) -> Vector:
    """Return numbers with `places` fewer decimal places."""
    unit = 10**places
    data = vector.data
    if data.dtype != object and _measure_magnitude(vector.bounds) + 2 * unit > _WORD:
        data = data.astype(object)
    low, high = vector.bounds
    # numpy turns zero-dimensional results into Python integers, and treats these as machine words.
    rounded = rounding(data.reshape(-1), unit).reshape(data.shape)
    return replace(vector, data=rounded, within=(low // unit - 1, high // unit + 1))


def _apply_ufunc(ufunc: Any, left: AnyArray, right: AnyArray) -> AnyArray:
    """Apply a function; arrays of words are allocated from Arrow's memory pool."""
    if left.dtype == object or left.ndim == right.ndim == 0:
        return np.asarray(ufunc(left, right), dtype=left.dtype)
    return np.asarray(ufunc(left, right, out=allocate_array((left if left.ndim else right).size, np.int64)))


def _shift_digits(data: AnyArray, places: int) -> AnyArray:
    return data if places == 0 else np.asarray(data * 10**places, dtype=data.dtype)


def _scale_bounds(bounds: Interval, places: int) -> Interval:
    return bounds[0] * 10**places, bounds[1] * 10**places


def _measure_magnitude(bounds: Interval) -> int:
    return max(abs(bounds[0]), abs(bounds[1]))


def _fits_word(bounds: Interval) -> bool:
    return _measure_magnitude(bounds) <= _WORD


def _enclose_values(values: Sequence[int]) -> Interval:
    return min(values), max(values)
