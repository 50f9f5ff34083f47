"""How cost grows: a power law through the medians."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return b of the least squares fit seconds ≈ a · size^b, on logarithms of both."""
    slope, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return float(slope)
