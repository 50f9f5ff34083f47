"""How cost grows: a power law through the medians."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class PowerLaw(NamedTuple):
    """How time grows with size: the exponent, and its standard error, by how far points are from the line."""

    exponent: float
    error: float

    def __str__(self) -> str:
        return f"{self.exponent:.2f} ± {self.error:.2f}"


def power_law(sizes: Sequence[float], seconds: Sequence[float]) -> PowerLaw:
    """Fit seconds ≈ a · size^b by least squares on logarithms of both; three points at least."""
    (slope, _), covariance = np.polyfit(np.log(sizes), np.log(seconds), 1, cov=True)
    return PowerLaw(float(slope), float(np.sqrt(covariance[0, 0])))
