"""The rows of a file that a format of tables has deleted without writing the file anew."""

from __future__ import annotations

import base64
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sparkext.kernels.buffers import Int64Array

_KEPT = 64
_NONE: Int64Array = np.empty(0, dtype=np.int64)


@lru_cache(_KEPT)
def deleted_rows(told: str) -> Int64Array:
    """Return the numbers of a file's deleted rows, in order.

    `told` are the distances of each from the one before it, as 64-bit integers (little endian) in base 64. Empty: none.
    """
    return np.cumsum(np.frombuffer(base64.b64decode(told), dtype="<i8")) if told else _NONE


def kept_of(deleted: Int64Array, first: int, count: int) -> npt.NDArray[np.intp] | None:
    """Return which of `count` rows from number `first` on are not deleted, counted from `first`; None for all."""
    start, stop = np.searchsorted(deleted, (first, first + count))
    if start == stop:
        return None
    keeps = np.ones(count, dtype=np.bool_)
    keeps[deleted[start:stop] - first] = False
    return np.flatnonzero(keeps)
