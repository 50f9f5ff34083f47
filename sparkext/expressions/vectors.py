"""Values of an expression for the rows of a set: numbers as flat numpy arrays, strings as Arrow arrays.

    decimal128 array ──▶ Vector(data=int64[n], known=bool[n], failed=None, within=(-99, 12345)) ──▶ decimal128 array

A constant has zero-dimensional arrays, which numpy broadcasts. `data` is undefined in rows that are null or failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.columns.buffers import unpack_bitmap, unpack_validity, view_values
from sparkext.kernels.keys.decimal_words import halves_of, read_unscaled_digits
from sparkext.kernels.keys.normalised import decimal_halves
from sparkext.kernels.runtime.jit import AnyArray
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.expressions.number_types import FLOATS, INTEGERS, WORDS, parse_unscaled
from sparkext.rows.types import arrow_key_type

BoolArray = npt.NDArray[np.bool_]
Mask = BoolArray | None
"""One bool per row, or zero-dimensional for all rows. None: always true as `known`, never true as `failed`."""
Interval = tuple[int, int]
TEXTS = ("string", "binary")
_DTYPES = {"bool": "?", **{name: name for name in (*INTEGERS, *FLOATS)}, **WORDS, "time": "int64", "decimal": "int64"}


@dataclass(frozen=True)
class Vector:
    """Values: `data` is valid in rows that are `known` (not null) and not `failed` (an error).

    Numbers are numpy arrays: dates as days, times and intervals as int64 in their unit, decimals as unscaled digits,
    which are int64, or objects (Python integers) if a value needs more bits. Strings are binary arrays or scalars of
    Arrow, whose own nulls are ignored. `within`: bounds of all integers or decimals, if known.
    """

    data: Any
    known: Mask = None
    failed: Mask = None
    within: Interval | None = None

    @property
    def bounds(self) -> Interval:
        """Bounds of all integers or decimals: the known ones, else the extremes."""
        return find_extremes(self.data) if self.within is None else self.within

    @property
    def is_constant(self) -> bool:
        """Whether it has the same value for all rows."""
        return isinstance(self.data, pa.Scalar) or (isinstance(self.data, np.ndarray) and self.data.ndim == 0)

    def measured(self) -> Vector:
        """Return the same values with exact bounds."""
        return replace(self, within=find_extremes(self.data))


def find_extremes(data: AnyArray) -> Interval:
    """Return the smallest and the largest integer; 0 and 0 for an empty array."""
    return (int(data.min()), int(data.max())) if data.size else (0, 0)


def intersect_masks(*masks: Mask) -> Mask:
    """Return the conjunction of masks; None is true everywhere."""
    arrays = [mask for mask in masks if mask is not None]
    return reduce(np.bitwise_and, arrays) if arrays else None


def unite_masks(*masks: Mask) -> Mask:
    """Return the disjunction of masks; None is false everywhere."""
    arrays = [mask for mask in masks if mask is not None]
    return reduce(np.bitwise_or, arrays) if arrays else None


def where_true(vector: Vector) -> BoolArray:
    """Return whether a condition is true; false for null."""
    return np.asarray(vector.data if vector.known is None else vector.data & vector.known)


def where_false(vector: Vector) -> BoolArray:
    """Return whether a condition is false and not null."""
    return np.asarray(~vector.data if vector.known is None else ~vector.data & vector.known)


def combine_failures(first: Mask, condition: Mask, second: Mask) -> Mask:
    """Return the failures of two operands, of which the second is evaluated only if `condition` (None: always)."""
    return unite_masks(first, None if second is None else intersect_masks(second, condition))


def combine_known(args: Sequence[Vector]) -> tuple[Mask, Mask]:
    """Return whether all arguments are known, and whether one fails; each is evaluated if those before it are known."""
    known, failed = args[0].known, args[0].failed
    for argument in args[1:]:
        failed = combine_failures(failed, known, argument.failed)
        known = intersect_masks(known, argument.known)
    return known, failed


def find_zero_divisors(node: Expression, left: Vector, right: Vector) -> tuple[BoolArray, Mask, Mask]:
    """Return which divisors are 0, and masks of known and failed rows. Spark evaluates the divisor first."""
    zero = np.asarray(right.data == 0, dtype=np.bool_)
    divides = right.known if node.checked else intersect_masks(right.known, ~zero)
    known = intersect_masks(left.known, divides)
    failed = combine_failures(right.failed, divides, left.failed)
    return zero, known, unite_masks(failed, intersect_masks(zero, known)) if node.checked else failed


def dtype_of(kind: KeyType) -> np.dtype[Any]:
    """Return the dtype of a type's values; for decimals, of values that fit machine words."""
    return np.dtype(_DTYPES[kind.name])


def vector_of(array: pa.Array, kind: KeyType) -> Vector:
    """View an Arrow array of this type (see `arrow_key_type`); strings may have offsets of either width."""
    valid = unpack_validity(array)
    known = None if valid is None else valid.view(np.bool_)
    if kind.name in TEXTS:
        is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        return Vector(array.cast(pa.large_binary() if is_large else pa.binary()), known)
    if kind.name == "bool":
        return Vector(unpack_bitmap(array, 1).view(np.bool_), known)
    if kind.name != "decimal":
        return Vector(view_values(array, _DTYPES[kind.name]), known)
    words = read_unscaled_digits(array)
    if words is not None:
        return Vector(words.digits, known, within=(words.least, words.most))
    return Vector(_decode_digits(array, known), known)


def _decode_digits(array: pa.Array, known: Mask) -> AnyArray:
    """Return decimals of any length as Python integers, nulls as 0."""
    halves = decimal_halves(array)
    digits = (halves[:, 1].astype(object) << 64) + halves[:, 0].view(np.uint64).astype(object)
    return digits if known is None else np.where(known, digits, 0)


def make_constant(text: str | None, kind: KeyType) -> Vector:
    """Return the value of a literal."""
    if kind.name in TEXTS:
        return Vector(pa.scalar(b"" if text is None else text.encode(), pa.binary()), _mask_constant(text is not None))
    if text is None:
        return Vector(np.zeros((), dtype_of(kind)), _mask_constant(False))
    number = parse_numbers([text], kind).reshape(())
    return Vector(number, within=None if number.dtype.kind in "bf" else find_extremes(number))


def _mask_constant(known: bool) -> Mask:
    return None if known else np.zeros((), dtype=np.bool_)


def parse_numbers(texts: Sequence[str], kind: KeyType) -> AnyArray:
    """Return the values of numeric literals of a type."""
    if kind.name == "bool":
        return np.array([text == "true" for text in texts], dtype=np.bool_)
    if kind.name in FLOATS:
        return np.array([float(text) for text in texts], dtype=kind.name)
    values = [parse_unscaled(text, kind.scale) for text in texts]
    fits = all(-(1 << 63) <= value < 1 << 63 for value in values)
    return np.array(values, dtype=dtype_of(kind) if fits else object)


def convert_to_arrow(vector: Vector, kind: KeyType, length: int) -> pa.Array:
    """Return `length` values as an Arrow array of this type; strings keep the offset width of their columns."""
    known = vector.known
    if known is not None and known.ndim == 0:
        if not known:
            return pa.nulls(length, arrow_key_type(kind))
        known = None
    if kind.name in TEXTS:
        return _encode_texts(vector.data, known, kind, length)
    data = np.asarray(vector.data)
    if data.ndim == 0:
        data = np.full(length, data)
    if data.dtype == object:
        data = _encode_halves(data, known)
    elif kind.name == "bool":
        data = np.packbits(data, bitorder="little")
    elif kind.name == "decimal":
        data = halves_of(data)
    bitmap = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(arrow_key_type(kind), length, [bitmap, pa.py_buffer(np.ascontiguousarray(data))])


def _encode_halves(digits: AnyArray, known: Mask) -> AnyArray:
    values = digits if known is None else np.where(known, digits, 0)
    return np.frombuffer(b"".join(value.to_bytes(16, "little", signed=True) for value in values.tolist()), np.int64)


def _encode_texts(data: Any, known: Mask, kind: KeyType, length: int) -> pa.Array:
    array = pa.array([data.as_py()]).take(pa.array(np.zeros(length, np.int32))) if isinstance(data, pa.Scalar) else data
    if known is not None:
        array = pc.if_else(pa.array(known), array, pa.scalar(None, array.type))
    is_large = pa.types.is_large_binary(array.type)
    # Substrings at character boundaries, and values of string columns, are valid strings.
    if kind.name == "string":
        return array.view(pa.large_string() if is_large else pa.string())
    return array
