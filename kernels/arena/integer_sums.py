"""Exact sums of int64 from which values can be removed.

An accumulator is [sum of the upper halves, sum of the lower halves, number of values].
"""

from __future__ import annotations

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.runtime.jit import inlined

INTEGER_SUM_WORDS = 3
_LOW = 0xFFFFFFFF


@inlined
def add_integer(arena: Int64Array, at: int, value: int, weight: int) -> None:
    """Add a value `weight` times; a negative weight removes it."""
    arena[at] += weight * (value >> 32)
    arena[at + 1] += weight * (value & _LOW)
    arena[at + 2] += weight


@inlined
def has_integer_sum(arena: Int64Array, at: int) -> bool:
    """Return whether there is a value, and the sum fits int64."""
    upper = arena[at] + (arena[at + 1] >> 32)
    return arena[at + 2] > 0 and -(1 << 31) <= upper < 1 << 31


@inlined
def integer_sum(arena: Int64Array, at: int) -> int:
    """Return the sum, which has to fit int64."""
    return ((arena[at] + (arena[at + 1] >> 32)) << 32) + (arena[at + 1] & _LOW)


@inlined
def integer_average(arena: Int64Array, at: int) -> float:
    """Return the average of the values. There has to be one."""
    upper = arena[at] + (arena[at + 1] >> 32)
    return (float(upper) * 4294967296.0 + float(arena[at + 1] & _LOW)) / float(arena[at + 2])
