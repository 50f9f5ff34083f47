"""As-of joins: a probe row matches the build row with equal keys whose compared value is nearest.

    build entries of one group      3   7   7   12          probe value 9
    backward (≤ 9)                          ▲               the last 7
    forward  (≥ 9)                              ▲           12
    nearest                                 ▲               9 - 7 < 12 - 9

Each direction is a range of entries in a range index (see `range_index`), one end of which is the result. Entries with
equal values are in the order of the build side: the last of them is nearest backward, the first forward, as in pandas'
`merge_asof`. At equal distances in both directions, the backward entry is the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.columns.row_ids import RowIds
from sparkext.kernels.indexes.bounds import Bound
from sparkext.kernels.indexes.matches import Matches
from sparkext.kernels.indexes.range_index import RangeIndex, RangeKeys
from sparkext.kernels.keys.normalised import NormalisedKeys, column_words
from sparkext.kernels.runtime.jit import freeze, inlined, kernel


@dataclass(frozen=True)
class NearestKeys:
    """The keys of probe rows: equal keys, a value of the compared type for each row, and the direction of the search.

    `exact`: an equal value may match. `tolerance`: the largest distance in units of the type's words, or None.
    """

    equal: NormalisedKeys
    values: pa.Array
    direction: str
    exact: bool
    tolerance: int | float | None


def find_nearest(index: RangeIndex, keys: NearestKeys) -> Matches:
    """Return at most one match per probe row.

    Direction `nearest` and a tolerance require values that have distances: no strings, and at most 64 bits.
    """
    equal = "=" if keys.exact else ""
    entries: RowIds | None = None
    if keys.direction in ("backward", "nearest"):
        entries = _find_end(index, keys, f"<{equal}", last=True)
    if keys.direction in ("forward", "nearest"):
        forward = _find_end(index, keys, f">{equal}", last=False)
        if entries is None:
            entries = forward
        else:
            _take_nearer(index.words, column_words(keys.values), _has_doubles(keys.values), freeze(forward), entries)
    assert entries is not None, f"unknown direction {keys.direction}"
    if keys.tolerance is not None:
        words, doubles = column_words(keys.values), _has_doubles(keys.values)
        if doubles:
            _drop_distant_doubles(index.words, words, float(keys.tolerance), entries)
        else:
            _drop_distant(index.words, words, np.uint64(min(max(int(keys.tolerance), 0), 2**64 - 1)), entries)
    matched = int(np.count_nonzero(entries >= 0))
    return Matches(freeze(entries), None, index.rows, matched, matched)


def _find_end(index: RangeIndex, keys: NearestKeys, op: str, last: bool) -> RowIds:
    """Return the last or the first entry of every probe row's range, or -1."""
    matches = index.lookup(RangeKeys(keys.equal, [[Bound(op, keys.values)]]))
    assert isinstance(matches, Matches) and matches.counts is not None
    entries: RowIds = matches.first + matches.counts - 1 if last else matches.first.copy()
    entries[matches.first < 0] = -1
    return entries


def _has_doubles(values: pa.Array) -> bool:
    return bool(pa.types.is_floating(values.type))


@inlined
def _distance(one: np.int64, other: np.int64) -> np.uint64:
    """Return |one - other| without overflow."""
    return np.uint64(one) - np.uint64(other) if one > other else np.uint64(other) - np.uint64(one)


@inlined
def _to_double_bits(word: np.int64) -> np.int64:
    """Return the bits of a double, given its word by `keys.column_words`."""
    return word if word >= 0 else word ^ np.int64(0x7FFFFFFFFFFFFFFF)


@kernel
def _take_nearer(words: Int64Array, wanted: Int64Array, doubles: bool, after: RowIds, found: RowIds) -> None:
    """Replace the backward entries in `found` by the forward entries in `after`, if these are nearer to `wanted`."""
    bits = np.empty(3, dtype=np.int64)
    values = bits.view(np.float64)
    for i in range(found.size):
        if after[i] < 0:
            continue
        if found[i] < 0:
            found[i] = after[i]
        elif doubles:
            bits[0] = _to_double_bits(wanted[i])
            bits[1] = _to_double_bits(words[found[i]])
            bits[2] = _to_double_bits(words[after[i]])
            if values[2] - values[0] < values[0] - values[1]:
                found[i] = after[i]
        elif _distance(words[after[i]], wanted[i]) < _distance(wanted[i], words[found[i]]):
            found[i] = after[i]


@kernel
def _drop_distant(words: Int64Array, wanted: Int64Array, tolerance: np.uint64, found: RowIds) -> None:
    for i in range(found.size):
        if found[i] >= 0 and _distance(words[found[i]], wanted[i]) > tolerance:
            found[i] = -1


@kernel
def _drop_distant_doubles(words: Int64Array, wanted: Int64Array, tolerance: float, found: RowIds) -> None:
    """Like `_drop_distant`, for doubles.

    NaN and infinities have distance 0 to themselves, and are too far from all other values.
    """
    bits = np.empty(2, dtype=np.int64)
    values = bits.view(np.float64)
    for i in range(found.size):
        if found[i] >= 0 and words[found[i]] != wanted[i]:
            bits[0] = _to_double_bits(wanted[i])
            bits[1] = _to_double_bits(words[found[i]])
            if not abs(values[0] - values[1]) <= tolerance:
                found[i] = -1
