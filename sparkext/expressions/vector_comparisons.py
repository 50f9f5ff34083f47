"""Comparisons of columns, and choices by comparison, in Spark's order: NaN equals NaN and is the greatest number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.expressions.vectors import (
    TEXTS,
    BoolArray,
    Vector,
    combine_known,
    intersect_masks,
    parse_numbers,
    unite_masks,
)
from sparkext.kernels.columns.buffers import unpack_bitmap
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.expressions.key_types import KeyType

_MIRRORED = {">": "<", ">=": "<="}
_OF_NUMBERS: dict[str, Any] = {"=": np.equal, "<": np.less, "<=": np.less_equal}
_OF_TEXTS: dict[str, Callable[..., Any]] = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}
_COMPARED_ONE_BY_ONE = 8
"""Up to this number of literals, values are compared with each; above it, binary search is used."""


def compare_vectors(op: str, left: Vector, right: Vector) -> Vector:
    """Compare two columns of one type; null if either value is null, except for `<=>`."""
    if op == "<=>":
        return _compare_null_safe(left, right)
    known, failed = combine_known([left, right])
    return Vector(compare_values(op, left.data, right.data), known, failed)


def _compare_null_safe(left: Vector, right: Vector) -> Vector:
    failed = unite_masks(left.failed, right.failed)
    equal = compare_values("=", left.data, right.data)
    known = intersect_masks(left.known, right.known)
    if known is None:
        return Vector(equal, None, failed)
    return Vector((known & equal) | ~any_known(left, right), None, failed)


def any_known(left: Vector, right: Vector) -> BoolArray:
    """Return whether at least one of two values is known."""
    if left.known is None or right.known is None:
        return np.ones((), dtype=np.bool_)
    return np.asarray(left.known | right.known)


def compare_values(op: str, left: Any, right: Any) -> BoolArray:
    """Compare the values of two vectors, regardless of whether they are known."""
    if op in _MIRRORED:
        return compare_values(_MIRRORED[op], right, left)
    if isinstance(left, (pa.Array, pa.Scalar)):
        return _compare_texts(op, left, right)
    result = np.asarray(_OF_NUMBERS[op](left, right), dtype=np.bool_)
    if left.dtype.kind != "f":
        return result
    left_nan, right_nan = np.isnan(left), np.isnan(right)
    if op == "=":
        return np.asarray(result | (left_nan & right_nan))
    return np.asarray(result | (right_nan & ~left_nan) if op == "<" else result | right_nan)


def _compare_texts(op: str, left: Any, right: Any) -> BoolArray:
    widths = {left.type, right.type}
    if len(widths) > 1:
        left, right = (side.cast(pa.large_binary()) for side in (left, right))
    return convert_to_bools(_OF_TEXTS[op](left, right))


def convert_to_bools(result: Any) -> BoolArray:
    """Return the result of an Arrow comparison as bools; null becomes false."""
    if isinstance(result, pa.Scalar):
        return np.asarray(result.as_py() is True)
    bools: BoolArray = unpack_bitmap(result.fill_null(False), 1).view(np.bool_)
    return bools


def check_membership(node: Expression, operand: Vector) -> Vector:
    """IN: true if the value is found, null if it is not and there is a null in the list."""
    kind = node.args[0].type
    assert kind is not None, "what is listed has a type"
    is_found = _search_list(node.texts, kind, operand.data)
    known = intersect_masks(operand.known, is_found) if None in node.texts else operand.known
    return Vector(is_found, known, operand.failed)


def _search_list(texts: tuple[str | None, ...], kind: KeyType, data: Any) -> BoolArray:
    literals = _parse_list(texts, kind)
    if kind.name in TEXTS:
        return convert_to_bools(pc.is_in(data, value_set=literals.cast(data.type)))
    is_found = np.isnan(data) if data.dtype.kind == "f" and np.isnan(literals).any() else np.zeros(data.shape, np.bool_)
    if data.dtype == object:
        return np.asarray(np.isin(data, [*literals.tolist()]) if literals.size else is_found, dtype=np.bool_)
    if literals.dtype == object:
        literals = np.array([value for value in literals.tolist() if -(1 << 63) <= value < 1 << 63], dtype=np.int64)
    if literals.size <= _COMPARED_ONE_BY_ONE or data.ndim == 0:
        for value in literals:
            is_found = is_found | (data == value)
        return np.asarray(is_found)
    positions = np.minimum(np.searchsorted(literals, data), literals.size - 1)
    return np.asarray(is_found | (literals[positions] == data))


@lru_cache(maxsize=16)
def _parse_list(texts: tuple[str | None, ...], kind: KeyType) -> Any:
    """Return the literals of a list without null, numbers sorted; cached, as every morsel is tested against them."""
    literals = [text for text in texts if text is not None]
    if kind.name in TEXTS:
        return pa.array([text.encode() for text in literals], pa.binary())
    return np.unique(parse_numbers(literals, kind))


def choose_extreme(op: str, args: Sequence[Vector]) -> Vector:
    """LEAST and GREATEST, which ignore nulls; of equal values the first is returned."""
    result = args[0]
    for argument in args[1:]:
        is_better = compare_values("<" if op == "least" else ">", argument.data, result.data)
        if result.known is not None:
            is_better = is_better | ~result.known
        is_chosen = is_better if argument.known is None else is_better & argument.known
        known = None if result.known is None or argument.known is None else any_known(result, argument)
        result = Vector(
            choose_values(is_chosen, argument.data, result.data),
            known,
            unite_masks(result.failed, argument.failed),
            enclose_bounds(argument, result),
        )
    return result


def choose_values(takes: BoolArray, first: Any, second: Any) -> Any:
    """Return values of `first` if `takes`, else of `second`."""
    if isinstance(first, (pa.Array, pa.Scalar)):
        if first.type != second.type:
            first, second = (side.cast(pa.large_binary()) for side in (first, second))
        return pc.if_else(pa.scalar(bool(takes)) if takes.ndim == 0 else pa.array(takes), first, second)
    return np.asarray(np.where(takes, first, second))


def enclose_bounds(first: Vector, second: Vector) -> tuple[int, int] | None:
    """Return bounds of both vectors, None if either has none."""
    if first.within is None or second.within is None:
        return None
    return min(first.within[0], second.within[0]), max(first.within[1], second.within[1])
