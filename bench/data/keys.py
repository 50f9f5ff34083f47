"""Keys of generated tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ODD = np.uint64(0x9E3779B97F4A7C15)


def spread(keys: np.ndarray) -> np.ndarray:
    """Spread integer keys over all 64 bits by multiplication with an odd number, which is a bijection.

    The keys resemble identifiers of other systems, and their index is a hash table.
    """
    return (keys.astype(np.uint64) * _ODD).view(np.int64)


def padded(numbers: Any, width: int, padding: str = "0") -> Any:
    """Return numbers, a numpy or an Arrow array, as text of this width."""
    column = pa.array(numbers) if isinstance(numbers, np.ndarray) else numbers
    return pc.utf8_lpad(column.cast(pa.string()), width=width, padding=padding)
