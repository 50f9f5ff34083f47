"""Fits a power law to measured times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class PowerLaw(NamedTuple):
    """The exponent by which time grows with size, and its standard error from the residuals of the fit."""

    exponent: float
    error: float

    def __str__(self) -> str:
        return f"{self.exponent:.2f} ± {self.error:.2f}"


def power_law(sizes: Sequence[float], seconds: Sequence[float]) -> PowerLaw:
    """Fit seconds ≈ a · size^b by least squares on the logarithms of both. At least three points are required."""
    (slope, _), covariance = np.polyfit(np.log(sizes), np.log(seconds), 1, cov=True)
    return PowerLaw(float(slope), float(np.sqrt(covariance[0, 0])))
