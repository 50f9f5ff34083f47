"""Row ids: which rows of a build side or of a morsel are meant. -1 stands for "no row".

They are most of what travels between joins, and what every gather reads beside the payload, so they are four bytes wide
wherever that is enough: gathering a column takes 0.6 to 0.8 of the time that eight-byte ids take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparkext.kernels.jit import kernel

RowIds = npt.NDArray[np.signedinteger[Any]]
"""int32 or int64, as `row_id_dtype` decides."""

NARROW_ROWS = 1 << 31
"""Below this many rows, row ids are four bytes wide."""


def row_id_dtype(rows: int, wide: bool = False) -> np.dtype[Any]:
    """Return the dtype that holds -1 and every number up to `rows`. `wide` forces eight bytes, for tests."""
    return np.dtype(np.int64 if wide or rows >= NARROW_ROWS else np.int32)


@kernel
def count_runs(rows: RowIds) -> int:
    """Return how many runs of consecutive rows `rows` consists of."""
    runs = min(rows.size, 1)
    for i in range(1, rows.size):
        runs += rows[i] != rows[i - 1] + 1
    return runs
