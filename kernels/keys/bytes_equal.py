"""Comparison of byte strings inside kernels."""

from __future__ import annotations

import numpy as np

from sparkext.kernels.columns.buffers import UInt8Array
from sparkext.kernels.runtime.intrinsics import load_u64
from sparkext.kernels.runtime.jit import inlined


@inlined
def spans_equal(
    left: UInt8Array, left_start: int, left_end: int, right: UInt8Array, right_start: int, right_end: int
) -> bool:
    """Return whether `left[left_start:left_end]` and `right[right_start:right_end]` hold the same bytes."""
    length = left_end - left_start
    if length != right_end - right_start:
        return False
    if length >= 8:
        for i in range(0, length - 8, 8):
            if load_u64(left, left_start + i) != load_u64(right, right_start + i):
                return False
        # The last word may overlap the word before it: this is cheaper than comparing the last bytes one by one.
        return load_u64(left, left_end - 8) == load_u64(right, right_end - 8)
    for i in range(length):
        if left[left_start + i] != right[right_start + i]:
            return False
    return True


@inlined
def compare_spans(
    left: UInt8Array, left_start: int, left_end: int, right: UInt8Array, right_start: int, right_end: int
) -> int:
    """Return -1, 0 or 1 if the left byte string sorts before, equal to or after the right one (unsigned bytes)."""
    left_length = left_end - left_start
    right_length = right_end - right_start
    shorter = min(left_length, right_length)
    i = 0
    while i + 8 <= shorter and load_u64(left, left_start + i) == load_u64(right, right_start + i):
        i += 8
    while i < shorter:
        a = np.int64(left[left_start + i])
        b = np.int64(right[right_start + i])
        if a != b:
            return -1 if a < b else 1
        i += 1
    if left_length == right_length:
        return 0
    return -1 if left_length < right_length else 1
