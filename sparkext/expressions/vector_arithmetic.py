"""Arithmetic of integers, floats and dates, column by column, with the results of Java.

Integers wrap around, or overflow with an error (`checked`). The extremes of a batch usually prove that none overflows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkext.expressions.decimal_vectors import combine_intervals, to_decimal, to_double
from sparkext.expressions.vectors import (
    BoolArray,
    Interval,
    Vector,
    combine_failures,
    combine_known,
    dtype_of,
    find_zero_divisors,
    intersect_masks,
    unite_masks,
)
from sparkext.kernels.runtime.jit import AnyArray
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.expressions.number_types import FLOATS, INTEGERS

_UFUNCS: dict[str, Any] = {"+": np.add, "-": np.subtract, "*": np.multiply}


def compute_arithmetic(node: Expression, left: Vector, right: Vector) -> Vector:
    """Add, subtract or multiply two columns of one type; also dates and days, or two dates."""
    known, failed = combine_known([left, right])
    data = np.asarray(_UFUNCS[node.op](left.data, right.data))
    if not node.checked or node.number in FLOATS:
        return Vector(data, known, failed)
    bounds = combine_intervals(node.op, left.bounds, right.bounds)
    if _fits(node, bounds):
        return Vector(data, known, failed, bounds)
    overflows = _overflows(node, left.data, right.data, data)
    return Vector(data, known, unite_masks(failed, intersect_masks(overflows, known)))


def _overflows(node: Expression, left: AnyArray, right: AnyArray, wrapped: AnyArray) -> BoolArray:
    if wrapped.dtype != np.int64:
        exact = _UFUNCS[node.op](left.astype(np.int64), right.astype(np.int64))
        return np.asarray(exact != wrapped)
    if node.op == "+":
        return np.asarray(((left ^ wrapped) & (right ^ wrapped)) < 0)
    if node.op == "-":
        return np.asarray(((left ^ right) & (left ^ wrapped)) < 0)
    # A product overflows if dividing it by one factor does not return the other, or if -1 times the smallest integer.
    divisor = np.where((left == 0) | (left == -1), 1, left)
    return np.asarray(
        np.where(left == -1, right == np.iinfo(np.int64).min, (left != 0) & (wrapped // divisor != right))
    )


def _fits(node: Expression, bounds: Interval) -> bool:
    limits = np.iinfo(node.number)
    return int(limits.min) <= bounds[0] and bounds[1] <= int(limits.max)


def divide_numbers(node: Expression, left: Vector, right: Vector) -> Vector:
    """Return quotients of doubles, or remainders of any numbers, with the sign of the dividend."""
    zero, known, failed = find_zero_divisors(node, left, right)
    if node.op == "/":
        return Vector(np.asarray(left.data / right.data), known, failed)
    if node.number in FLOATS:
        return Vector(np.asarray(np.fmod(left.data, right.data)), known, failed)
    # The remainder of a division by -1 is 0, as by 1, but computing it may overflow.
    divisor = np.where(zero | (right.data == -1), np.ones((), right.data.dtype), right.data)
    return Vector(np.asarray(np.fmod(left.data, divisor)), known, failed)


def divide_integers(node: Expression, left: Vector, right: Vector) -> Vector:
    """Divide integers, truncating towards zero; only the smallest integer divided by -1 overflows."""
    zero = np.asarray(right.data == 0)
    rest = divide_numbers(node, left, right)
    negated = right.data == -1
    divisor = np.where(zero | negated, np.ones((), right.data.dtype), right.data)
    data = np.asarray(np.where(negated, np.negative(left.data), (left.data - np.fmod(left.data, divisor)) // divisor))
    if not node.checked:
        return Vector(data, rest.known, rest.failed)
    overflows = intersect_masks(np.asarray(negated & (left.data == np.iinfo(data.dtype).min)), rest.known)
    return Vector(data, rest.known, unite_masks(rest.failed, overflows))


def compute_positive_remainder(node: Expression, left: Vector, right: Vector) -> Vector:
    """Return remainders r; a negative r is replaced by (r + n) % n, in which r + n wraps around as in Java."""
    rest = divide_numbers(node, left, right)
    if node.number in FLOATS:
        shifted = np.fmod(rest.data + right.data, right.data)
    else:
        wide_type = np.promote_types(rest.data.dtype, np.int32)
        divisor = np.where((right.data == 0) | (right.data == -1), 1, right.data).astype(wide_type)
        shifted = np.fmod(rest.data.astype(wide_type) + divisor, divisor).astype(rest.data.dtype)
    return Vector(np.asarray(np.where(rest.data < 0, shifted, rest.data)), rest.known, rest.failed)


def is_nan(_: Expression, operand: Vector) -> Vector:
    """Return whether floats are NaN; false for null."""
    return Vector(_find_nans(operand), None, operand.failed)


def _find_nans(operand: Vector) -> BoolArray:
    nans = np.asarray(np.isnan(operand.data))
    return nans if operand.known is None else np.asarray(nans & operand.known)


def replace_nans(_: Expression, left: Vector, right: Vector) -> Vector:
    """Return floats of `left`, with NaN replaced by `right`, which is not evaluated in other rows."""
    replaced = _find_nans(left)
    known = left.known if right.known is None else intersect_masks(left.known, ~replaced | right.known)
    data = np.asarray(np.where(replaced, right.data, left.data))
    return Vector(data, known, combine_failures(left.failed, replaced, right.failed))


def change_sign(node: Expression, operand: Vector) -> Vector:
    """Return negated or absolute integers or floats."""
    data = np.asarray((np.negative if node.op == "negate" else np.abs)(operand.data))
    if not node.checked or node.number in FLOATS:
        return Vector(data, operand.known, operand.failed)
    overflows = intersect_masks(np.asarray(operand.data == np.iinfo(data.dtype).min), operand.known)
    return Vector(data, operand.known, unite_masks(operand.failed, overflows))


def compute_square_root(_: Expression, operand: Vector) -> Vector:
    """Return square roots of doubles."""
    return Vector(np.asarray(np.sqrt(operand.data)), operand.known, operand.failed)


def cast(node: Expression, operand: Vector) -> Vector:
    """Cast numbers or dates to another type; integers wrap around."""
    (argument,) = node.args
    assert node.type is not None and argument.type is not None, "what is cast has types"
    if argument.type.name == "decimal" and node.type.name in FLOATS:
        return to_double(operand, argument.scale)
    if node.type.name == "decimal":
        return to_decimal(node, operand)
    data = operand.data.astype(dtype_of(node.type))
    is_widened = argument.type.name in INTEGERS and operand.data.dtype.itemsize <= data.dtype.itemsize
    return Vector(
        data, operand.known, operand.failed, operand.within if is_widened and data.dtype.kind == "i" else None
    )
