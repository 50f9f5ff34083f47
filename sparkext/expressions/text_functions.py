"""Tests of strings, which compare bytes as in Spark, and functions of strings, which count characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.expressions.vector_comparisons import convert_to_bools
from sparkext.expressions.vectors import Vector, intersect_masks, unite_masks
from sparkext.kernels.runtime.jit import AnyArray
from sparkext.kernels.values.characters import count_characters, take_substrings
from sparkext.kernels.values.patterns import match_pattern
from sparkext.plans.expressions.expression import Expression

_TESTS: dict[str, Callable[..., Any]] = {
    "starts_with": pc.starts_with,
    "ends_with": pc.ends_with,
    "contains": pc.match_substring,
    "like": pc.match_like,
}
_TRIMS: dict[str, Callable[..., Any]] = {
    "trim": pc.ascii_trim,
    "trim_left": pc.ascii_ltrim,
    "trim_right": pc.ascii_rtrim,
}


def match_text(node: Expression, tested: Vector) -> Vector:
    """Test bytes for a literal pattern: Arrow's tests of strings would compare characters, and bytes may be invalid."""
    pattern = node.args[1].text
    assert pattern is not None, "patterns are not null"
    # In Arrow, `_` is one byte of a binary value, and backslashes have other rules.
    if node.op == "like" and ("_" in pattern or "\\" in pattern):
        return Vector(
            _apply_to_strings(tested, lambda texts: match_pattern(texts, pattern)), tested.known, tested.failed
        )
    return Vector(convert_to_bools(_TESTS[node.op](tested.data, pattern=pattern)), tested.known, tested.failed)


def length(operand: Vector) -> Vector:
    """Count characters."""
    return Vector(_apply_to_strings(operand, count_characters), operand.known, operand.failed)


def _apply_to_strings(operand: Vector, function: Callable[[pa.Array], AnyArray]) -> AnyArray:
    """Apply a function of columns to a column or a constant."""
    result = function(array_of(operand))
    return np.asarray(result[0]) if operand.is_constant else result


def array_of(operand: Vector) -> pa.Array:
    """Return strings as an array; a constant becomes an array of length 1."""
    return pa.array([operand.data.as_py()], operand.data.type) if operand.is_constant else operand.data


def extract_substrings(node: Expression, operand: Vector) -> Vector:
    """Return substrings by characters; position and length are literals."""
    position, count = (int(argument.text or "") for argument in node.args[1:])
    array = array_of(operand)
    parts = take_substrings(array, position, count)
    # No longer than the source, so its offset width suffices.
    parts = parts.cast(array.type)
    return Vector(parts[0] if operand.is_constant else parts, operand.known, operand.failed)


def trim_text(node: Expression, operand: Vector) -> Vector:
    """Remove spaces on both sides of strings, or on one; in UTF-8 no byte of another character equals a space."""
    array = array_of(operand)
    texts = array.cast(pa.large_binary()).view(pa.large_string())
    parts = _TRIMS[node.op](texts, " ").cast(array.type)
    return Vector(parts[0] if operand.is_constant else parts, operand.known, operand.failed)


def concatenate_texts(args: Sequence[Vector]) -> Vector:
    """Concatenate strings; null if one is null. As in Spark, all arguments are evaluated, even after a null."""
    is_large = any(pa.types.is_large_binary(argument.data.type) for argument in args)
    target = pa.large_binary() if is_large else pa.binary()
    parts = [argument.data.cast(target) for argument in args]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", target), null_handling="replace")
    known = intersect_masks(*(argument.known for argument in args))
    return Vector(joined, known, unite_masks(*(argument.failed for argument in args)))
