"""min and max of strings and binaries, byte by byte.

    group      prefix        start   length          bytes
      0        "sparkext"      0      10             sparkextra | a | ...      appended to; swept when half is stale
      1        "a"            10       1

The first eight bytes of a group's value, as a number, decide most comparisons. A new extreme is first recorded as a row
of the morsel, and copied at the end of the morsel. So only the last of a group's new extremes is copied.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int32Array, Int64Array, UInt8Array, UInt64Array, view_var_bytes
from sparkext.kernels.columns.growing import grow_array, pack_validity
from sparkext.kernels.groups.accumulator import Accumulator
from sparkext.kernels.groups.group_rows import GroupRows
from sparkext.kernels.groups.text_dictionary import large_type
from sparkext.kernels.keys.bytes_equal import compare_spans
from sparkext.kernels.runtime.intrinsics import copy_bytes
from sparkext.kernels.runtime.jit import freeze, inlined, kernel

_LEAST_SWEPT = 1 << 16


class TextExtremeAccumulator(Accumulator):
    """min and max of texts: [value, null if there was none]. See the module's drawing."""

    value_type: pa.DataType

    def __init__(self, function: str, value_type: pa.DataType) -> None:
        super().__init__(value_type)
        self._greatest = function == "max"
        self._prefixes = np.zeros(0, dtype=np.uint64)
        self._starts = np.zeros(0, dtype=np.int64)
        self._lengths = np.full(0, -1, dtype=np.int64)  # -1: no value yet
        self._rows = np.full(0, -1, dtype=np.int32)  # new extremes of a morsel; -1 between morsels
        self._bytes = np.empty(0, dtype=np.uint8)
        self._used = 0

    def _reserve(self, groups: int) -> None:
        self._prefixes = grow_array(self._prefixes, groups)
        self._starts = grow_array(self._starts, groups)
        self._lengths = grow_array(self._lengths, groups, fill=-1)
        self._rows = grow_array(self._rows, groups, fill=-1)

    def _add(self, rows: GroupRows, values: pa.Array) -> None:
        self._reserve(rows.groups)
        offsets, data = view_var_bytes(values)
        winners = np.empty(rows.rows, dtype=np.int32)
        count, size = _find_extremes(
            self._greatest,
            rows.all_numbers,
            offsets,
            data,
            rows.mask,
            self._prefixes,
            self._starts,
            self._lengths,
            self._rows,
            freeze(self._bytes),
            winners,
        )
        if self._used + size > self._bytes.size:
            self._sweep(size)
        ends = self._starts, self._lengths
        self._used = _keep_rows(freeze(winners[:count]), offsets, data, *ends, self._rows, self._bytes, self._used)

    def _sweep(self, more: int) -> None:
        """Reserve `more` bytes: drop stale bytes if they are more than half of all, else grow the buffer."""
        live_bytes = int(np.maximum(self._lengths, 0).sum())
        if self._used > 2 * live_bytes + _LEAST_SWEPT:
            buffer = np.empty(2 * live_bytes + more, dtype=np.uint8)
            self._used = _copy_values(self._starts, self._lengths, freeze(self._bytes), buffer)
            self._bytes = buffer
        else:
            self._bytes = grow_array(self._bytes, self._used + more)

    def states(self, start: int, stop: int) -> list[pa.Array]:
        """See `Accumulator`."""
        self._reserve(stop)
        lengths = self._lengths[start:stop]
        offsets = np.zeros(stop - start + 1, dtype=np.int64)
        np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
        data = np.empty(int(offsets[-1]), dtype=np.uint8)
        _copy_values(self._starts[start:stop].copy(), lengths, freeze(self._bytes), data)
        buffers = [pack_validity((lengths >= 0).view(np.uint8)), pa.py_buffer(offsets), pa.py_buffer(data)]
        array = pa.Array.from_buffers(large_type(self.value_type), lengths.size, buffers)
        return [array.cast(self.value_type)]


@inlined
def _prefix(data: UInt8Array, start: int, end: int) -> np.uint64:
    """Return the first eight bytes as a number in the order of the bytes, with zeros for missing bytes."""
    prefix = np.uint64(0)
    stop = min(end, start + 8)
    for j in range(start, stop):
        prefix = (prefix << np.uint64(8)) | np.uint64(data[j])
    for _ in range(stop - start, 8):
        prefix = prefix << np.uint64(8)
    return prefix


@kernel
def _find_extremes(
    greatest: bool,
    numbers: Int32Array,
    offsets: Int64Array,
    data: UInt8Array,
    mask: UInt8Array,
    prefixes: UInt64Array,
    starts: Int64Array,
    lengths: Int64Array,
    rows: Int32Array,
    kept: UInt8Array,
    winners: Int32Array,
) -> tuple[int, int]:
    """Record in `rows` and `prefixes`, for each group with a new extreme, the row of its text.

    Write these groups to `winners`; return their number, and the bytes of all texts that were the extreme at some time.
    """
    count = 0
    size = 0
    for i in range(numbers.size):
        if mask.size != 0 and mask[i] == 0:
            continue
        group = np.uint32(numbers[i])
        start, end = offsets[i], offsets[i + 1]
        prefix = _prefix(data, start, end)
        row = rows[group]
        if row >= 0 or lengths[group] >= 0:
            best = prefixes[group]
            if prefix != best:
                if (prefix > best) != greatest:
                    continue
            else:
                if row >= 0:
                    order = compare_spans(data, start, end, data, offsets[row], offsets[row + 1])
                else:
                    order = compare_spans(data, start, end, kept, starts[group], starts[group] + lengths[group])
                if order == 0 or (order > 0) != greatest:
                    continue
        if row < 0:
            winners[count] = numbers[i]
            count += 1
        rows[group] = i
        prefixes[group] = prefix
        size += end - start
    return count, size


@kernel
def _keep_rows(
    winners: Int32Array,
    offsets: Int64Array,
    data: UInt8Array,
    starts: Int64Array,
    lengths: Int64Array,
    rows: Int32Array,
    kept: UInt8Array,
    used: int,
) -> int:
    """Append the recorded text of each group of `winners` to `kept`, and reset its row; return the bytes used."""
    for k in range(winners.size):
        group = np.uint32(winners[k])
        start = offsets[rows[group]]
        length = offsets[rows[group] + 1] - start
        copy_bytes(kept, used, data, start, length)
        starts[group] = used
        lengths[group] = length
        rows[group] = -1
        used += length
    return used


@kernel
def _copy_values(starts: Int64Array, lengths: Int64Array, source: UInt8Array, target: UInt8Array) -> int:
    """Copy the texts of all groups to `target`, and update `starts`; return the number of bytes."""
    used = 0
    for group in range(lengths.size):
        length = lengths[group]
        if length >= 0:
            copy_bytes(target, used, source, starts[group], length)
            starts[group] = used
            used += length
    return used
