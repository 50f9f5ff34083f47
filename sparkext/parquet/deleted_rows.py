"""Rows of a file that a table format has marked as deleted, without rewriting the file."""

from __future__ import annotations

import base64
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sparkext.kernels.columns.buffers import Int64Array

_CACHED_FILES = 64
_NONE: Int64Array = np.empty(0, dtype=np.int64)


@lru_cache(_CACHED_FILES)
def decode_deleted_rows(encoded: str) -> Int64Array:
    """Return the indexes of a file's deleted rows, ascending.

    `encoded`: the first index, then the difference of each index from its predecessor, as little-endian 64-bit integers
    in base 64; empty if no rows are deleted.
    """
    return np.cumsum(np.frombuffer(base64.b64decode(encoded), dtype="<i8")) if encoded else _NONE


def select_undeleted(deleted: Int64Array, first: int, count: int) -> npt.NDArray[np.intp] | None:
    """Return which of `count` rows from row `first` on are not deleted, relative to `first`; None for all."""
    start, stop = np.searchsorted(deleted, (first, first + count))
    if start == stop:
        return None
    keeps = np.ones(count, dtype=np.bool_)
    keeps[deleted[start:stop] - first] = False
    return np.flatnonzero(keeps)
