"""Dictionary codes for the distinct byte strings of a column, in order of first appearance; null is one of them.

    table[slot] = (head, tail, length, code + 1)        the bytes of all texts, in order of their codes

    length of text        head, tail
    8 to 16 bytes         the first eight, the last eight       "DELIVER IN PERSON" is too long
    up to 7 bytes         all bytes, 0                          "TRUCK" = ("TRUCK", 0, 5)
    longer                a hash of all, the last eight         equal only if the bytes in the dictionary are equal, too

Texts of up to 16 bytes are distinguished by head, tail and length, without reading the dictionary's bytes. An entry is
within one cache line. Collisions are resolved by linear probing from the top bits of a hash of the entry. Slots are
prefetched if the table does not fit the nearer caches. Null has a code, `null_code`, but no entry.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparkext.kernels.columns.buffers import Int64Array, UInt8Array, allocate_array, unpack_validity, view_raw_var_bytes
from sparkext.kernels.columns.growing import HeldArrays, grow_array, pack_validity
from sparkext.kernels.groups.group_slots import aligned_zeros, most_groups
from sparkext.kernels.keys.bytes_equal import spans_equal
from sparkext.kernels.keys.hashing import FULL_MASK, hash_span
from sparkext.kernels.runtime.intrinsics import copy_bytes, load_u64, prefetch
from sparkext.kernels.runtime.jit import NO_MASK, AnyArray, freeze, inlined, kernel

_BLOCK = 64  # number of rows whose slots are prefetched together
_FIRST_SLOTS = 1 << 8
_CACHED_SLOTS = 1 << 13  # 256 KiB: below this nothing is prefetched
_LONGEST_WORDS = 16

_MIX_1 = np.uint64(0x9E3779B97F4A7C15)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT_32 = np.uint64(32)
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)


class TextDictionary(HeldArrays):
    """See the module's drawing. `hash_mask` is ANDed to every hash; tests set it to zero so that all texts collide."""

    def __init__(self, hash_mask: int = FULL_MASK) -> None:
        self._mask = np.uint64(hash_mask)
        self._slots = _FIRST_SLOTS
        self._table = aligned_zeros(4 * _FIRST_SLOTS)
        self._offsets = np.zeros(1, dtype=np.int64)
        self._data = np.empty(0, dtype=np.uint8)
        self._count = 0
        self._null_code = -1

    @property
    def count(self) -> int:
        """Distinct texts so far, including null."""
        return self._count

    @property
    def spans(self) -> tuple[Int64Array, UInt8Array]:
        """The offsets of the texts, int64[count + 1], and their bytes."""
        return freeze(self._offsets[: self._count + 1]), freeze(self._data)

    def codes(self, column: pa.Array) -> Int64Array:
        """Return int64[n]: the code of every row of a (large) string or binary column."""
        offsets, data = view_raw_var_bytes(column)
        mask = unpack_validity(column)
        valid = NO_MASK if mask is None else mask
        out = allocate_array(len(column), np.int64)
        row = 0
        while row < out.size:
            limit = min(most_groups(self._slots), self._offsets.size - 1)
            shift = np.uint64(65 - self._slots.bit_length())
            row, self._count, self._null_code = _find_codes(
                *(offsets, data, valid, row, self._table, shift, self._mask, self._slots > _CACHED_SLOTS),
                *(self._offsets, self._data, self._count, limit, self._null_code, out),
            )
            if row < out.size:
                self._grow_arrays(int(offsets[row + 1] - offsets[row]))
        return freeze(out)

    def _grow_arrays(self, size: int) -> None:
        """Grow each array that is too small for one more text of `size` bytes."""
        self._offsets = grow_array(self._offsets, self._count + 2)
        self._data = grow_array(self._data, int(self._offsets[self._count]) + size)
        if self._count >= most_groups(self._slots):
            entries = freeze(self._table)
            self._slots *= 2
            self._table = aligned_zeros(4 * self._slots)
            _move_entries(entries, self._table, np.uint64(65 - self._slots.bit_length()), self._mask)

    def texts(self, codes: Int64Array, arrow_type: pa.DataType) -> pa.Array:
        """Return the texts of `codes` as an array of `arrow_type`."""
        return self._array(0, self._count, arrow_type).take(pa.array(codes)).cast(arrow_type)

    def span(self, start: int, stop: int, arrow_type: pa.DataType) -> pa.Array:
        """Return the texts of the codes start to before stop as an array of `arrow_type`."""
        return self._array(start, stop, arrow_type).cast(arrow_type)

    def _array(self, start: int, stop: int, arrow_type: pa.DataType) -> pa.Array:
        first, end = self._offsets[start], self._offsets[stop]
        mask = np.arange(start, stop) != self._null_code
        buffers = [
            pack_validity(mask.view(np.uint8)),
            pa.py_buffer(self._offsets[start : stop + 1] - first),
            pa.py_buffer(self._data[first:end].copy()),
        ]
        return pa.Array.from_buffers(large_type(arrow_type), stop - start, buffers)


def large_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the string or binary type with 64-bit offsets that corresponds to `arrow_type`."""
    is_string = pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)
    return pa.large_string() if is_string else pa.large_binary()


@kernel
def _head_at_end(data: UInt8Array, start: int, length: int) -> np.uint64:
    """Return the head of a text of up to seven bytes, without reading past the text."""
    head = np.uint64(0)
    for k in range(length):
        head |= np.uint64(data[start + k]) << np.uint64(8 * (8 - length + k))
    return head


@inlined
def _is_code(
    data: UInt8Array, start: int, length: int, key_offsets: Int64Array, key_data: UInt8Array, following: int
) -> bool:
    """Return whether a text equals the text of code `following` - 1."""
    return spans_equal(data, start, start + length, key_data, key_offsets[following - 1], key_offsets[following])


@kernel
def _prefetch_slots(
    offsets: AnyArray, data: UInt8Array, first: int, stop: int, table: Int64Array, shift: np.uint64, mask: np.uint64
) -> None:
    """Prefetch the home slots of the rows first to before stop, computed as in `_find_codes`.

    The code that turns a text into words is repeated in both kernels: LLVM does not inline a function called twice.
    """
    for i in range(first, stop):
        start = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - start
        tail = np.uint64(0)
        if length >= 8:
            head = load_u64(data, start)
            tail = load_u64(data, start + length - 8)
            if length > _LONGEST_WORDS:
                head = hash_span(data, start, start + length) & mask
        elif start + 8 <= data.size:
            # Shift out the bytes after the text, in two steps: one shift by 64, for the empty text, is undefined.
            head = (load_u64(data, start) << _ONE) << np.uint64(63 - 8 * length)
        else:
            head = _head_at_end(data, start, length)
        h = (head ^ np.uint64(length)) * _MIX_1
        h = ((h ^ (h >> _SHIFT_32)) + tail) * _MIX_2
        prefetch(table, np.int64(((h & mask) >> shift) << _TWO))


@kernel
def _find_codes(
    offsets: AnyArray,
    data: UInt8Array,
    valid: UInt8Array,
    first: int,
    table: Int64Array,
    shift: np.uint64,
    mask: np.uint64,
    far: bool,
    key_offsets: Int64Array,
    key_data: UInt8Array,
    count: int,
    limit: int,
    null_code: int,
    out: Int64Array,
) -> tuple[int, int, int]:
    """out[i] = code of row i, from row `first` on; new texts are added.

    Return (the first row without a code, as an array is full; codes so far; code of null). `far`: prefetch slots.
    """
    none_null = valid.size == 0
    last_slot = np.uint64(table.size // 4 - 1)
    n = out.size
    for base in range(first, n, _BLOCK):
        stop = min(base + _BLOCK, n)
        if far:
            _prefetch_slots(offsets, data, base, stop, table, shift, mask)
        for i in range(base, stop):
            if not none_null and valid[i] == 0:
                if null_code < 0:
                    if count >= limit:
                        return i, count, null_code
                    key_offsets[count + 1] = key_offsets[count]
                    null_code = count
                    count += 1
                out[i] = null_code
                continue
            start = np.int64(offsets[i])
            length = np.int64(offsets[i + 1]) - start
            tail = np.uint64(0)
            if length >= 8:
                head = load_u64(data, start)
                tail = load_u64(data, start + length - 8)
                if length > _LONGEST_WORDS:
                    head = hash_span(data, start, start + length) & mask
            elif start + 8 <= data.size:
                # Shift out the bytes after the text, in two steps: one shift by 64, for the empty text, is undefined.
                head = (load_u64(data, start) << _ONE) << np.uint64(63 - 8 * length)
            else:
                head = _head_at_end(data, start, length)
            h = (head ^ np.uint64(length)) * _MIX_1
            h = ((h ^ (h >> _SHIFT_32)) + tail) * _MIX_2
            slot = (h & mask) >> shift
            at = slot << _TWO
            while table[at | _THREE] != 0 and (
                table[at] != np.int64(head)
                or table[at | _ONE] != np.int64(tail)
                or table[at | _TWO] != length
                or (
                    length > _LONGEST_WORDS
                    and not _is_code(data, start, length, key_offsets, key_data, table[at | _THREE])
                )
            ):
                slot = (slot + _ONE) & last_slot
                at = slot << _TWO
            code = table[at | _THREE] - 1
            if code < 0:
                end = key_offsets[count]
                if count >= limit or end + length > key_data.size:
                    return i, count, null_code
                copy_bytes(key_data, end, data, start, length)
                key_offsets[count + 1] = end + length
                code = np.int64(count)
                count += 1
                table[at] = np.int64(head)
                table[at | _ONE] = np.int64(tail)
                table[at | _TWO] = length
                table[at | _THREE] = count
            out[i] = code
    return n, count, null_code


@kernel
def _move_entries(source: Int64Array, table: Int64Array, shift: np.uint64, mask: np.uint64) -> None:
    """Enter all entries of `source` into the larger, empty `table`."""
    last_slot = np.uint64(table.size // 4 - 1)
    for entry in range(0, source.size, 4):
        if source[entry + 3] != 0:
            h = np.uint64(source[entry] ^ source[entry + 2]) * _MIX_1
            h = ((h ^ (h >> _SHIFT_32)) + np.uint64(source[entry + 1])) * _MIX_2
            slot = (h & mask) >> shift
            while table[(slot << _TWO) | _THREE] != 0:
                slot = (slot + _ONE) & last_slot
            for j in range(4):
                table[(slot << _TWO) | np.uint64(j)] = source[entry + j]
