"""Counts, sums and averages of values of any number type."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from sparkext.kernels.columns.growing import bool_array, fixed_array, pack_validity
from sparkext.kernels.groups.accumulator import Accumulator
from sparkext.kernels.groups.group_rows import GroupRows, SeenGroups, ValueCounts


class GroupSums(Protocol):
    """Sums of values, group by group."""

    def add(self, rows: GroupRows, values: pa.Array) -> None:
        """Add the values that are not null."""

    def array(self, start: int, stop: int) -> pa.Array:
        """Return the sums of the groups start to before stop, 0 if there was no value."""


class CountAccumulator(Accumulator):
    """count: [int64 not null]."""

    def __init__(self, value_type: pa.DataType | None) -> None:
        super().__init__(value_type)
        self._counts = ValueCounts()

    def _add(self, rows: GroupRows, values: pa.Array) -> None:
        self._counts.add(rows)

    def states(self, start: int, stop: int) -> list[pa.Array]:
        """See `Accumulator`."""
        return [fixed_array(self._counts.counts(start, stop), pa.int64())]


class AverageAccumulator(CountAccumulator):
    """avg of numbers: [sum, 0 if there was no value; int64 count]. The sum is a double, or a decimal for decimals."""

    def __init__(self, value_type: pa.DataType, sums: GroupSums) -> None:
        super().__init__(value_type)
        self._sums = sums

    def _add(self, rows: GroupRows, values: pa.Array) -> None:
        self._sums.add(rows, values)
        self._counts.add(rows)

    def states(self, start: int, stop: int) -> list[pa.Array]:
        """See `Accumulator`."""
        return [self._sums.array(start, stop), *super().states(start, stop)]


class SumAccumulator(Accumulator):
    """sum of integers or floats: [int64 or float64, null if there was no value]."""

    def __init__(self, value_type: pa.DataType, sums: GroupSums) -> None:
        super().__init__(value_type)
        self._sums, self._seen = sums, SeenGroups()

    def _add(self, rows: GroupRows, values: pa.Array) -> None:
        self._sums.add(rows, values)
        self._seen.add(rows)

    def states(self, start: int, stop: int) -> list[pa.Array]:
        """See `Accumulator`."""
        sums, validity = self._sums.array(start, stop), pack_validity(self._seen.flags(start, stop))
        return [pa.Array.from_buffers(sums.type, len(sums), [validity, sums.buffers()[1]])]


class DecimalSumAccumulator(SumAccumulator):
    """sum of decimal(p, s): [decimal(min(38, p + 10), s), isEmpty bool not null].

    Without a value the sum is 0 and isEmpty true. A sum that has overflown is null, and isEmpty false.
    """

    def states(self, start: int, stop: int) -> list[pa.Array]:
        """See `Accumulator`."""
        return [self._sums.array(start, stop), bool_array(1 - self._seen.flags(start, stop))]
