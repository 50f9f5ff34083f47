"""Rows in the order that Spark sorts them in: which are before a bound, and which are first.

A column becomes parts, each of which orders rows that are alike in all parts before it:

    x DESC NULLS LAST      3   NULL   NaN   -0.0   0.0
    where nulls are        0     1     0      0     0       small words: nulls last
    values               ~3.0    0   ~NaN   ~0.0  ~0.0      words whose order is that of the values; ~ turns it round

Decimals of more than 18 digits have two words, texts and binary values are their bytes. A *bound* is a row's value in
each part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.kernels.buffers import is_var, validity
from sparkext.kernels.keys import column_words, decimal_halves, word_bits

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
Bound = Sequence[Any]

_SIGN_BIT = np.int64(-(2**63))


class Part(Protocol):
    """Values of all rows, none of them null."""

    def before(self, value: Any) -> Mask:
        """Return which rows come before a value."""
        ...

    def equal(self, value: Any) -> Mask:
        """Return which rows are alike to a value."""
        ...

    def last_of_first(self, rows: Rows, count: int) -> Any:
        """Return the last of the `count` first values that these rows have, at least one and at most all."""
        ...


@dataclass(frozen=True)
class Words:
    """Values that are compared as signed integers."""

    values: npt.NDArray[np.signedinteger[Any]]

    def before(self, value: Any) -> Mask:
        """Return which rows have a lesser word."""
        return np.asarray(self.values < value)

    def equal(self, value: Any) -> Mask:
        """Return which rows have this word."""
        return np.asarray(self.values == value)

    def last_of_first(self, rows: Rows, count: int) -> Any:
        """Return the least word that so many rows do not exceed."""
        return np.partition(self.values[rows], count - 1)[count - 1]


@dataclass(frozen=True)
class Bytes:
    """Values that are compared byte by byte, as unsigned numbers; the largest is first unless `ascending`."""

    values: pa.Array
    ascending: bool

    def before(self, value: Any) -> Mask:
        """Return which rows come before this value."""
        compared = pc.less(self.values, value) if self.ascending else pc.greater(self.values, value)
        return _mask(compared)

    def equal(self, value: Any) -> Mask:
        """Return which rows have these bytes."""
        return _mask(pc.equal(self.values, value))

    def last_of_first(self, rows: Rows, count: int) -> Any:
        """Return the value that so many rows are not behind."""
        values = self.values.take(pa.array(rows))
        first = pc.bottom_k_unstable(values, count) if self.ascending else pc.top_k_unstable(values, count)
        return values[first[count - 1].as_py()]


def parts_of(column: pa.Array, ascending: bool, nulls_first: bool) -> list[Part]:
    """Return a column as parts: as many, and of the same kinds, for all columns of a type."""
    given = validity(column) if column.null_count else None
    known = np.ones(len(column), dtype=np.bool_) if given is None else given.astype(np.bool_)
    nulls = Words((known if nulls_first else ~known).astype(np.int8))
    if is_var(column.type):
        large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        values = column.cast(pa.large_binary() if large else pa.binary())
        return [nulls, Bytes(values.fill_null(b"") if values.null_count else values, ascending)]
    if word_bits(column.type) is None:
        halves = decimal_halves(column)
        words = [halves[:, 1], halves[:, 0] ^ _SIGN_BIT]
    else:
        words = [column_words(column)]
    if given is not None:
        words = [np.where(known, some, 0) for some in words]
    if not ascending:
        words = [np.where(known, ~some, 0) for some in words]
    return [nulls, *map(Words, words)]


def compared(parts: Sequence[Part], bound: Bound) -> tuple[Mask, Mask]:
    """Return which rows come before a bound, and which are alike to it, by at least one part."""
    before, equal = parts[0].before(bound[0]), parts[0].equal(bound[0])
    for part, value in zip(parts[1:], bound[1:], strict=True):
        if not equal.any():
            break
        before = before | (equal & part.before(value))
        equal = equal & part.equal(value)
    return before, equal


def first_rows(parts: Sequence[Part], count: int) -> tuple[Rows, Bound]:
    """Return `count` rows before which no others come, in the order of their numbers, and the last of them as a bound.

    All rows have to be at least as many. As a quickselect does, each part parts the rows that are still in question:

        first 4 of   a a b b b c      a a are, 2 of b b b are: whichever the next part says
    """
    length = len(_first_values(parts))
    taken: list[Rows] = []
    asked: Rows = np.arange(length)
    bound: list[Any] = []
    for part in parts:
        value = part.last_of_first(asked, count)
        bound.append(value)
        sure = part.before(value)[asked]
        taken.append(asked[sure])
        count -= taken[-1].size
        asked = asked[part.equal(value)[asked]]
    return np.sort(np.concatenate([*taken, asked[:count]])), bound


def _first_values(parts: Sequence[Part]) -> Any:
    """Return what the first part has a value a row of."""
    first = parts[0]
    assert isinstance(first, Words), "a column begins with where its nulls are"
    return first.values


def _mask(values: pa.Array) -> Mask:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.bool_)
