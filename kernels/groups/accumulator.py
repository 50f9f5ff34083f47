"""The interface of accumulators: they aggregate the values of each group into the states that Spark merges."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int32Array, unpack_validity
from sparkext.kernels.columns.growing import HeldArrays
from sparkext.kernels.groups.group_rows import GroupRows
from sparkext.kernels.runtime.jit import NO_MASK, freeze


class Accumulator(HeldArrays, ABC):
    """States of an aggregate function, in one or more arrays with an element per group.

    Parameters
    ----------
    value_type
        The type of the values; None for count(*).
    """

    def __init__(self, value_type: pa.DataType | None) -> None:
        self.value_type = value_type

    def add(self, numbers: Int32Array | None, groups: int, values: pa.Array | None, rows: int = 0) -> None:
        """Add the rows of a morsel.

        Parameters
        ----------
        numbers
            int32[n], the group id of each row, all below `groups`; None if there is a single group, 0.
        groups
            The number of groups so far. A group need not have a row.
        values
            The value of each row; None for count(*).
        rows
            The number of rows: required if there are neither numbers nor values.
        """
        mask = None
        if values is not None:
            rows = len(values)
            if pa.types.is_null(values.type):
                values = pa.nulls(rows, self.value_type)
            mask = unpack_validity(values)
        elif numbers is not None:
            rows = numbers.size
        if numbers is not None:
            assert numbers.size == rows, f"{numbers.size} numbers for {rows} rows"
            assert numbers.dtype == np.int32, f"numbers are int32, not {numbers.dtype}"
            numbers = freeze(numbers)
        self._add(GroupRows(numbers, max(groups, 1), rows, NO_MASK if mask is None else mask), values)

    @abstractmethod
    def _add(self, rows: GroupRows, values: pa.Array) -> None:
        """Add rows. `values` is None for count(*)."""

    @abstractmethod
    def states(self, start: int, stop: int) -> list[pa.Array]:
        """Return the states of the groups start to before stop: Spark's aggregation buffers, in Spark's order.

        They share no memory with the accumulator. A group without rows has the initial state.
        """
