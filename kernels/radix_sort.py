"""Stable radix sort of words with their row ids: the only sort of the ordered index."""

from __future__ import annotations

import numpy as np

from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.jit import frozen, kernel
from sparkext.kernels.row_ids import RowIds

_DIGIT_BITS = 11
_DIGITS = 6
_BUCKETS = 1 << _DIGIT_BITS


def sort_words(words: Int64Array, rows: RowIds) -> tuple[Int64Array, RowIds]:
    """Return words (int64[n]) and rows (n of them) ordered by signed word, ties in the given order.

    The inputs stay as they are. Least-significant digit first, eleven bits a pass; a digit that is the same in every
    word costs no pass, so small ranges sort in one or two. Words that are already sorted are returned as they came.
    Passes go back and forth between two pairs of arrays: new memory costs as much as moving the words does.
    """
    if is_sorted(words):
        return words, rows
    histogram = np.zeros((_DIGITS, _BUCKETS), dtype=np.int64)
    _histogram(words, histogram)
    spare: list[tuple[Int64Array, RowIds]] = []
    for digit in range(_DIGITS):
        if histogram[digit].max() == words.size:
            continue
        if len(spare) < 2:
            spare.append((np.empty_like(words), np.empty_like(rows)))
        out_words, out_rows = spare[-1]
        _pass(words, rows, digit * _DIGIT_BITS, histogram[digit], out_words, out_rows)
        words, rows = frozen(out_words), frozen(out_rows)
        spare.reverse()
    return words, rows


@kernel
def is_sorted(words: Int64Array) -> bool:
    """Tell whether the words never descend."""
    for i in range(1, words.size):
        if words[i] < words[i - 1]:
            return False
    return True


@kernel
def _histogram(words: Int64Array, histogram: Int64Array) -> None:
    """Count all digits of all words in one read. The sign bit is flipped, so that digits order as signed words do."""
    for i in range(words.size):
        word = np.uint64(words[i]) ^ np.uint64(0x8000000000000000)
        for digit in range(_DIGITS):
            bucket = (word >> np.uint64(_DIGIT_BITS * digit)) & np.uint64(_BUCKETS - 1)
            histogram[digit, np.int64(bucket)] += 1


@kernel
def _pass(
    words: Int64Array,
    rows: RowIds,
    shift: int,
    counts: Int64Array,
    out_words: Int64Array,
    out_rows: RowIds,
) -> None:
    """One stable counting-sort pass; `counts` is consumed."""
    total = 0
    for bucket in range(counts.size):
        count = counts[bucket]
        counts[bucket] = total
        total += count
    for i in range(words.size):
        word = np.uint64(words[i]) ^ np.uint64(0x8000000000000000)
        bucket = np.int64((word >> np.uint64(shift)) & np.uint64(_BUCKETS - 1))
        at = counts[bucket]
        counts[bucket] = at + 1
        out_words[at] = words[i]
        out_rows[at] = rows[i]
