"""Connectives and conditionals: their values for all rows, and the rows in which a failed operand matters."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from sparkext.expressions.vector_comparisons import choose_values, enclose_bounds
from sparkext.expressions.vectors import (
    BoolArray,
    Mask,
    Vector,
    combine_failures,
    intersect_masks,
    unite_masks,
    where_false,
    where_true,
)


def both_hold(left: Vector, right: Vector) -> Vector:
    """AND: the right operand is evaluated unless the left one is false."""
    is_false, known, failed = _connect(left, right, where_false)
    return Vector(np.asarray(~is_false), known, failed)


def one_holds(left: Vector, right: Vector) -> Vector:
    """OR: the right operand is evaluated unless the left one is true."""
    return Vector(*_connect(left, right, where_true))


def _connect(left: Vector, right: Vector, decides: Callable[[Vector], BoolArray]) -> tuple[BoolArray, Mask, Mask]:
    """Return whether an operand decides the result, and masks of known and failed rows."""
    left_decides, right_decides = decides(left), decides(right)
    decided = np.asarray(left_decides | right_decides)
    failed = left.failed if right.failed is None else combine_failures(left.failed, ~left_decides, right.failed)
    known = intersect_masks(left.known, right.known)
    return decided, None if known is None else known | decided, failed


def branch(condition: Vector, then: Vector, otherwise: Vector) -> Vector:
    """IF: a branch that is not taken cannot fail."""
    is_true = where_true(condition)
    known = _pick_masks(is_true, then.known, otherwise.known, default=True)
    failed = unite_masks(condition.failed, _pick_masks(is_true, then.failed, otherwise.failed, default=False))
    return Vector(choose_values(is_true, then.data, otherwise.data), known, failed, enclose_bounds(then, otherwise))


def coalesce_vectors(args: Iterable[Vector]) -> Vector:
    """COALESCE: each argument is evaluated if those before it are null."""
    result: Vector | None = None
    for argument in args:
        if result is None:
            result = argument
        elif result.known is not None:
            known = None if argument.known is None else result.known | argument.known
            failed = combine_failures(result.failed, ~result.known, argument.failed)
            result = Vector(
                choose_values(result.known, result.data, argument.data), known, failed, enclose_bounds(result, argument)
            )
    assert result is not None, "there is one at least"
    return result


def _pick_masks(takes: BoolArray, first: Mask, second: Mask, default: bool) -> Mask:
    if first is None and second is None:
        return None
    return np.asarray(np.where(takes, default if first is None else first, default if second is None else second))
