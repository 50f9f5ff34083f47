"""Timestamps as integers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array

NO_TIME = -(1 << 63)
"""Represents a missing time, before all others."""


def convert_to_microseconds(times: pa.Array, missing: int = NO_TIME) -> Int64Array:
    """Return timestamps as int64[n], in microseconds; nulls become `missing`."""
    whole = times.cast(pa.timestamp("us", times.type.tz)).view(pa.int64()).fill_null(missing)
    return np.asarray(whole, dtype=np.int64)
