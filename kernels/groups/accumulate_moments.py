"""Variances and standard deviations: count, mean, and sum of squared deviations from the mean, of each group.

Values are added one by one (Welford, "Note on a Method for Calculating Corrected Sums of Squares and Products",
1962): sums of squares would lose all digits if deviations are small relative to the mean.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import DoubleArray, Int32Array, UInt8Array, view_values
from sparkext.kernels.columns.growing import fixed_array, grow_array
from sparkext.kernels.groups.accumulator import Accumulator
from sparkext.kernels.groups.group_rows import GroupRows
from sparkext.kernels.runtime.jit import kernel


class MomentsAccumulator(Accumulator):
    """stddev_samp, stddev_pop, var_samp, var_pop: [float64 n, float64 avg, float64 m2], zeros if there was no value."""

    def __init__(self, value_type: pa.DataType) -> None:
        super().__init__(value_type)
        self._moments = np.zeros(0, dtype=np.float64)  # n, avg, m2 of each group

    def _add(self, rows: GroupRows, values: pa.Array) -> None:
        self._moments = grow_array(self._moments, 3 * rows.groups)
        doubles = view_values(values.cast(pa.float64(), safe=False), np.float64)
        _add_moments(rows.all_numbers, doubles, rows.mask, self._moments)

    def states(self, start: int, stop: int) -> list[pa.Array]:
        """See `Accumulator`."""
        self._moments = grow_array(self._moments, 3 * stop)
        return [fixed_array(self._moments[3 * start + at : 3 * stop : 3], pa.float64()) for at in range(3)]


@kernel
def _add_moments(numbers: Int32Array, doubles: DoubleArray, mask: UInt8Array, moments: DoubleArray) -> None:
    for i in range(numbers.size):
        if mask.size == 0 or mask[i] != 0:
            at = np.uint64(3) * np.uint64(np.uint32(numbers[i]))
            n = moments[at] + 1.0
            delta = doubles[i] - moments[at + np.uint64(1)]
            step = delta / n
            moments[at] = n
            moments[at + np.uint64(1)] += step
            moments[at + np.uint64(2)] += delta * (delta - step)
