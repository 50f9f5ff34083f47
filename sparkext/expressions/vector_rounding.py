"""Conversion of floats, decimals and wider integers to integers, and rounding of integers to tens and hundreds."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkext.expressions.decimal_vectors import drop_places
from sparkext.expressions.vectors import BoolArray, Vector, intersect_masks, unite_masks
from sparkext.kernels.runtime.jit import AnyArray
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.expressions.number_types import FLOATS

_END_OF_LONGS = float(1 << 63)
MOST_PLACES = 18  # 10^18 is the last power of ten that fits a word


def round_integers(node: Expression, operand: Vector) -> Vector:
    """Round integers to tens, hundreds and so on."""
    places = -int(node.args[1].text or "")
    if places <= 0:
        return operand
    assert places <= MOST_PLACES, "the planner leaves the others to Spark"
    unit = 10**places
    data = operand.data.astype(np.int64)
    # `quotient` is rounded towards zero, and `rest` is the remainder.
    rest = np.fmod(data, unit)
    quotient = (data - rest) // unit
    distance = 2 * np.abs(rest)
    rounds_away = distance >= unit
    if node.op == "round_even":
        rounds_away = (distance > unit) | ((distance == unit) & (quotient % 2 != 0))
    quotient = quotient + np.where(rounds_away, np.sign(data), 0)
    exact = np.asarray(quotient * unit)
    narrow = exact.astype(operand.data.dtype)
    if not node.checked:
        return Vector(narrow, operand.known, operand.failed)
    most = np.iinfo(narrow.dtype)
    overflows = np.asarray((quotient > int(most.max) // unit) | (quotient < -(-int(most.min) // unit)))
    return Vector(narrow, operand.known, unite_masks(operand.failed, intersect_masks(overflows, operand.known)))


def round_to_longs(node: Expression, operand: Vector) -> Vector:
    """Return floors or ceilings of doubles as int64, saturated at its limits; NaN becomes 0."""
    rounded = np.asarray((np.floor if node.op == "floor" else np.ceil)(operand.data))
    data = _saturate(rounded, np.dtype(np.int64))
    if not node.checked:
        return Vector(data, operand.known, operand.failed)
    overflows = np.asarray((rounded >= _END_OF_LONGS) | (rounded < -_END_OF_LONGS))
    return Vector(data, operand.known, unite_masks(operand.failed, intersect_masks(overflows, operand.known)))


def to_integer(node: Expression, operand: Vector) -> Vector:
    """Convert numbers or bools to integers of a type; fractions are truncated."""
    (argument,) = node.args
    target = np.dtype(node.number)
    if argument.type is not None and argument.type.name in FLOATS:
        return _convert_floats(node, operand, target)
    data = operand.data
    if argument.scale:
        data = drop_places(data, argument.scale)
    most = np.iinfo(target)
    fails: BoolArray = np.zeros((), np.bool_)
    if node.checked and data.dtype != np.bool_:
        fails = np.asarray((data > int(most.max)) | (data < int(most.min)), dtype=np.bool_)
    failed = unite_masks(operand.failed, intersect_masks(fails, operand.known)) if fails.any() else operand.failed
    return Vector(_wrap_integers(data, target), operand.known, failed)


def _wrap_integers(data: AnyArray, target: np.dtype[Any]) -> AnyArray:
    if data.dtype == object:
        data = np.asarray((data + (1 << 63)) % (1 << 64) - (1 << 63), dtype=object).astype(np.int64)
    return data.astype(target)


def _convert_floats(node: Expression, operand: Vector, target: np.dtype[Any]) -> Vector:
    """Convert floats as Java does: saturated to int or long, then wrapped to narrower types."""
    wide_type = np.dtype(np.int64 if target.itemsize == 8 else np.int32)
    data = _saturate(np.trunc(operand.data), wide_type).astype(target)
    if not node.checked:
        return Vector(data, operand.known, operand.failed)
    # Java compares doubles: 2^63, the double nearest to the largest long, is too large, but passes.
    double = operand.data.astype(np.float64)
    fits = (np.floor(double) <= float(np.iinfo(target).max)) & (np.ceil(double) >= float(np.iinfo(target).min))
    return Vector(data, operand.known, unite_masks(operand.failed, intersect_masks(np.asarray(~fits), operand.known)))


def _saturate(floats: AnyArray, target: np.dtype[Any]) -> AnyArray:
    """Return whole floats as integers, saturated at the limits of the type; NaN becomes 0."""
    limits = np.iinfo(target)
    end = -float(limits.min)
    inside = (floats >= -end) & (floats < end)
    data = np.where(inside, floats, 0).astype(target)
    return np.asarray(np.where(floats >= end, limits.max, np.where(floats < -end, limits.min, data)), dtype=target)
