"""Rows in Spark's sort order: which rows are before a bound, and which are first.

A column is represented by parts; each part orders the rows that are equal in all parts before it:

    x DESC NULLS LAST      3   NULL   NaN   -0.0   0.0
    nulls                  0     1     0      0     0       small words: nulls last
    values               ~3.0    0   ~NaN   ~0.0  ~0.0      words in the order of the values; ~ reverses it

Decimals of more than 18 digits have two words. Strings and binary values are their bytes. A *bound* consists of a row's
value in each part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.columns.buffers import is_var, unpack_validity
from sparkext.kernels.keys.normalised import column_words, decimal_halves, word_bits

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
Bound = Sequence[Any]

_SIGN_BIT = np.int64(-(2**63))


class OrderPart(Protocol):
    """Values of all rows, none of them null."""

    def before(self, value: Any) -> Mask:
        """Return which rows come before a value."""
        ...

    def equal(self, value: Any) -> Mask:
        """Return which rows equal a value."""
        ...

    def last_of_first(self, rows: Rows, count: int) -> Any:
        """Return the last of the `count` first values of `rows`; `count` is from 1 to the number of rows."""
        ...


@dataclass(frozen=True)
class IntegerPart:
    """Values that are compared as signed integers."""

    values: npt.NDArray[np.signedinteger[Any]]

    def before(self, value: Any) -> Mask:
        """Return which rows have a smaller word."""
        return np.asarray(self.values < value)

    def equal(self, value: Any) -> Mask:
        """Return which rows have this word."""
        return np.asarray(self.values == value)

    def last_of_first(self, rows: Rows, count: int) -> Any:
        """Return the `count`-th smallest word of `rows`."""
        return np.partition(self.values[rows], count - 1)[count - 1]


@dataclass(frozen=True)
class BytesPart:
    """Values that are compared byte by byte, as unsigned numbers; in descending order unless `ascending`."""

    values: pa.Array
    ascending: bool

    def before(self, value: Any) -> Mask:
        """Return which rows come before this value."""
        is_before = pc.less(self.values, value) if self.ascending else pc.greater(self.values, value)
        return _convert_to_mask(is_before)

    def equal(self, value: Any) -> Mask:
        """Return which rows have these bytes."""
        return _convert_to_mask(pc.equal(self.values, value))

    def last_of_first(self, rows: Rows, count: int) -> Any:
        """Return the `count`-th value of `rows` in the order."""
        values = self.values.take(pa.array(rows))
        first = pc.bottom_k_unstable(values, count) if self.ascending else pc.top_k_unstable(values, count)
        return values[first[count - 1].as_py()]


def split_into_parts(column: pa.Array, ascending: bool, nulls_first: bool) -> list[OrderPart]:
    """Return a column as parts; all columns of a type have the same number and kinds of parts."""
    validity = unpack_validity(column) if column.null_count else None
    is_valid = np.ones(len(column), dtype=np.bool_) if validity is None else validity.astype(np.bool_)
    nulls = IntegerPart((is_valid if nulls_first else ~is_valid).astype(np.int8))
    if is_var(column.type):
        large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        values = column.cast(pa.large_binary() if large else pa.binary())
        return [nulls, BytesPart(values.fill_null(b"") if values.null_count else values, ascending)]
    if word_bits(column.type) is None:
        halves = decimal_halves(column)
        words = [halves[:, 1], halves[:, 0] ^ _SIGN_BIT]
    else:
        words = [column_words(column)]
    if validity is not None:
        words = [np.where(is_valid, word, 0) for word in words]
    if not ascending:
        words = [np.where(is_valid, ~word, 0) for word in words]
    return [nulls, *map(IntegerPart, words)]


def compare_to_bound(parts: Sequence[OrderPart], bound: Bound) -> tuple[Mask, Mask]:
    """Return which rows come before a bound of at least one part, and which are equal to it."""
    before, equal = parts[0].before(bound[0]), parts[0].equal(bound[0])
    for part, value in zip(parts[1:], bound[1:], strict=True):
        if not equal.any():
            break
        before = before | (equal & part.before(value))
        equal = equal & part.equal(value)
    return before, equal


def select_first_rows(parts: Sequence[OrderPart], count: int) -> tuple[Rows, Bound]:
    """Return the indexes of the first `count` rows, in ascending order of index, and the last of these rows as a bound.

    `count` is at most the number of rows. As in quickselect, each part divides the rows that are still undecided:

        first 4 of   a a b b b c      a a are selected, and 2 of b b b, as the next part decides
    """
    length = len(_first_values(parts))
    selected: list[Rows] = []
    candidates: Rows = np.arange(length)
    bound: list[Any] = []
    for part in parts:
        value = part.last_of_first(candidates, count)
        bound.append(value)
        is_before = part.before(value)[candidates]
        selected.append(candidates[is_before])
        count -= selected[-1].size
        candidates = candidates[part.equal(value)[candidates]]
    return np.sort(np.concatenate([*selected, candidates[:count]])), bound


def _first_values(parts: Sequence[OrderPart]) -> Any:
    """Return the values of the first part, which has one value per row."""
    first = parts[0]
    assert isinstance(first, IntegerPart), "a column begins with where its nulls are"
    return first.values


def _convert_to_mask(values: pa.Array) -> Mask:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.bool_)
