"""Timestamps as integers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array

NO_TIME = -(1 << 63)
"""Represents a missing time; it is before all times."""


def convert_to_microseconds(times: pa.Array, missing: int = NO_TIME) -> Int64Array:
    """Return timestamps as int64[n], in microseconds; nulls become `missing`."""
    microseconds = times.cast(pa.timestamp("us", times.type.tz)).view(pa.int64()).fill_null(missing)
    return np.asarray(microseconds, dtype=np.int64)
