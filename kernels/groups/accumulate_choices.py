"""first and last: each group stores the value of one of its rows, of any type.

position by group  stored values: pieces of morsels, in order
┌───┬───┬────┐     ┌───┬───┐ ┌───┐
│ 2 │ 0 │ -1 │     │ a │ x │ │ b │          x is stale: its group has a newer value, b (last only)
└───┴───┴────┘     └───┴───┘ └───┘
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int32Array, Int64Array, UInt8Array, is_var
from sparkext.kernels.columns.growing import bool_array, grow_array
from sparkext.kernels.groups.accumulator import Accumulator
from sparkext.kernels.groups.group_rows import GroupRows
from sparkext.kernels.groups.text_dictionary import large_type
from sparkext.kernels.runtime.jit import kernel

_MOST_PIECES = 64


class ChoiceAccumulator(Accumulator):
    """first and last: [value, valueSet bool not null]. Nulls are values, unless they are ignored."""

    value_type: pa.DataType

    def __init__(self, function: str, value_type: pa.DataType, ignore_nulls: bool) -> None:
        super().__init__(value_type)
        self._is_last = function == "last"
        self._ignore_nulls = ignore_nulls
        # Pieces of strings are concatenated; the result may exceed 32-bit offsets.
        self._stored_type = large_type(value_type) if is_var(value_type) else value_type
        self._positions = np.full(0, -1, dtype=np.int64)
        self._pieces: list[pa.Array] = []
        self._stored_count = 0
        self._live_count = 0

    @property
    def nbytes(self) -> int:
        """See `Accumulator`."""
        return super().nbytes + sum(piece.nbytes for piece in self._pieces)

    def _add(self, rows: GroupRows, values: pa.Array) -> None:
        self._positions = grow_array(self._positions, rows.groups, fill=-1)
        mask = rows.mask if self._ignore_nulls else rows.mask[:0]
        chosen = np.empty(min(rows.rows, self._positions.size), dtype=np.int64)
        count, fresh = _choose(self._is_last, rows.all_numbers, mask, self._stored_count, self._positions, chosen)
        if count:
            piece = values.take(pa.array(chosen[:count]))
            self._pieces.append(piece.cast(self._stored_type))
            self._stored_count += count
            self._live_count += fresh
            if len(self._pieces) > _MOST_PIECES or self._stored_count > 2 * self._live_count:
                self._sweep()

    def _sweep(self) -> None:
        """Concatenate the pieces, without stale values."""
        values = pa.concat_arrays(self._pieces)
        if self._stored_count > self._live_count:
            groups = np.flatnonzero(self._positions >= 0)
            values = values.take(pa.array(self._positions[groups]))
            self._positions[groups] = np.arange(groups.size)
        self._pieces = [values]
        self._stored_count = self._live_count

    def states(self, start: int, stop: int) -> list[pa.Array]:
        """See `Accumulator`."""
        self._positions = grow_array(self._positions, stop, fill=-1)
        positions = self._positions[start:stop]
        chosen = pa.array(positions, mask=positions < 0)
        pieces = self._pieces or [pa.array([], self._stored_type)]
        if len(pieces) > 1:
            self._sweep()
            return self.states(start, stop)
        return [pieces[0].take(chosen).cast(self.value_type), bool_array((positions >= 0).view(np.uint8))]


@kernel
def _choose(
    last: bool, numbers: Int32Array, mask: UInt8Array, kept: int, places: Int64Array, chosen: Int64Array
) -> tuple[int, int]:
    """Write the rows to store, and places[group] = kept + k for chosen[k].

    Return the number of chosen rows, and how many of them belong to groups without a value before.
    """
    count = 0
    fresh = 0
    for i in range(numbers.size):
        if mask.size != 0 and mask[i] == 0:
            continue
        group = np.uint32(numbers[i])
        place = places[group]
        if place >= kept:
            if last:
                chosen[place - kept] = i
        elif place < 0 or last:
            fresh += place < 0
            chosen[count] = i
            places[group] = kept + count
            count += 1
    return count, fresh
