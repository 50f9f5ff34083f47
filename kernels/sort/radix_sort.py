"""Stable radix sort of words with their row ids, for the ordered index and the range index.

    words of one segment ──▶ buckets by their leading bits ──▶ … ──▶ pieces that fit a cache ──▶ each sorted there

A segment that is too large for a cache is first distributed by the leading bits of the range of its words, repeatedly
if necessary. A piece that fits a cache is sorted by counting, digit by digit from the least significant digit. Digits
that are equal in all words of a piece cost nothing. Threads share the pieces. Measured on 5 M words of 47 bits with one
thread: 0.08 s as one segment, 0.07 s in a thousand segments. Sorting by all digits without pieces moves all words
through memory for each digit, and takes 0.17 s.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from sparkext.kernels.columns.buffers import Int64Array, allocate_array
from sparkext.kernels.columns.row_ids import RowIds
from sparkext.kernels.runtime.jit import freeze, inlined, kernel
from sparkext.kernels.runtime.threads import run_in_threads

PIECE = 1 << 16
"""Most words of a piece, which is sorted in a cache: two copies of words and row ids are at most 2 MiB."""

_FEW = 64
_LEADING_BITS = 11
_DIGITS = 6
_DIGIT_BITS = np.uint64(11)
_DIGIT = np.uint64((1 << 11) - 1)


def sort_words(words: Int64Array, rows: RowIds, threads: int = 1) -> tuple[Int64Array, RowIds]:
    """Return words (int64[n]) and rows (RowIds[n]) ordered by signed word, ties in the given order.

    The inputs are not changed. If the words are sorted already, the inputs themselves are returned.
    """
    if is_sorted(words):
        return words, rows
    out_words, out_rows = allocate_array(words.size, words.dtype), allocate_array(rows.size, rows.dtype)
    starts = np.array([0, words.size], dtype=np.int64)
    if words.size > PIECE:
        starts = _distribute(words, rows, out_words, out_rows)
    else:
        out_words[:] = words
        out_rows[:] = rows
    sort_segments(out_words, out_rows, freeze(starts), threads)
    return freeze(out_words), freeze(out_rows)


def sort_segments(words: Int64Array, rows: RowIds, starts: RowIds, threads: int = 1) -> None:
    """Order the words of each segment, and rows with them, in place, ties in the given order.

    Segment i is [starts[i], starts[i + 1]); it may be empty.
    """
    large = np.flatnonzero(np.diff(starts) > PIECE)
    if large.size:
        starts = _split_segments(words, rows, starts, large)
    cuts = np.searchsorted(starts, np.linspace(0, words.size, threads + 1)[1:-1])
    run_in_threads(
        lambda first, last: _sort_pieces(words, rows, freeze(starts[first : last + 1])),
        [0, *cuts.tolist(), starts.size - 1],
    )


def _split_segments(words: Int64Array, rows: RowIds, starts: RowIds, large: Int64Array) -> Int64Array:
    """Distribute large segments until every piece is small or sorted; return the starts of the pieces, and the end."""
    ends = [np.asarray(starts, dtype=np.int64)]
    pending = [(int(starts[segment]), int(starts[segment + 1])) for segment in large]
    while pending:
        start, stop = pending.pop()
        some_words, some_rows = words[start:stop], rows[start:stop]
        if is_sorted(some_words):
            continue
        buckets = start + _distribute(freeze(some_words.copy()), freeze(some_rows.copy()), some_words, some_rows)
        ends.append(buckets[1:-1])
        pending += [(first, last) for first, last in pairwise(buckets.tolist()) if last - first > PIECE]
    pieces = np.concatenate(ends)
    pieces.sort()
    return pieces


def _distribute(words: Int64Array, rows: RowIds, out_words: Int64Array, out_rows: RowIds) -> Int64Array:
    """Move words, which are not all equal, to buckets by their leading bits; return the starts of the buckets."""
    smallest, bits = _measure_span(words)
    leading = min(bits, _LEADING_BITS, (2 * words.size // PIECE).bit_length())
    ends = np.zeros((1 << leading) + 1, dtype=np.int64)
    _move_to_buckets(words, rows, smallest, bits - leading, ends, out_words, out_rows)
    return ends


@kernel
def is_sorted(words: Int64Array) -> bool:
    """Return whether the words never descend."""
    for i in range(1, words.size):
        if words[i] < words[i - 1]:
            return False
    return True


@inlined
def _count_bits(span: np.uint64) -> int:
    """Return the number of bits of a number."""
    bits = np.int64(0)
    while span:
        span >>= np.uint64(1)
        bits += 1
    return bits


@kernel
def _measure_span(words: Int64Array) -> tuple[np.int64, int]:
    """Return the smallest word, and the number of bits of the largest distance from it. There has to be a word."""
    low = high = words[0]
    for i in range(words.size):
        low = min(low, words[i])
        high = max(high, words[i])
    return low, _count_bits(np.uint64(high) - np.uint64(low))


@kernel
def _move_to_buckets(
    words: Int64Array,
    rows: RowIds,
    smallest: np.int64,
    shift: int,
    ends: Int64Array,
    out_words: Int64Array,
    out_rows: RowIds,
) -> None:
    """One stable pass by the bits above `shift` of the distance from `smallest`; bucket b ends at ends[b + 1]."""
    least, down = np.uint64(smallest), np.uint64(shift)
    for i in range(words.size):
        ends[np.int64((np.uint64(words[i]) - least) >> down) + 1] += 1
    total = np.int64(0)
    for bucket in range(1, ends.size):
        count = ends[bucket]
        ends[bucket] = total
        total += count
    for i in range(words.size):
        bucket = np.int64((np.uint64(words[i]) - least) >> down) + 1
        at = ends[bucket]
        ends[bucket] = at + 1
        out_words[at] = words[i]
        out_rows[at] = rows[i]


@kernel
def _sort_pieces(words: Int64Array, rows: RowIds, starts: RowIds) -> None:
    """Sort pieces of at most `PIECE` words each. A larger piece has to be sorted already."""
    longest = np.int64(0)
    for piece in range(starts.size - 1):
        size = np.int64(starts[piece + 1]) - np.int64(starts[piece])
        if size <= PIECE:
            longest = max(longest, size)
    spare_words = np.empty(longest, dtype=words.dtype)
    spare_rows = np.empty(longest, dtype=rows.dtype)
    counts = np.empty((_DIGITS, np.int64(_DIGIT) + 1), dtype=np.int64)
    for piece in range(starts.size - 1):
        start, stop = np.int64(starts[piece]), np.int64(starts[piece + 1])
        if stop - start < 2:
            continue
        low = high = words[start]
        ordered = True
        for i in range(start + 1, stop):
            ordered &= words[i] >= words[i - 1]
            low = min(low, words[i])
            high = max(high, words[i])
        if ordered:
            continue
        home = True
        if stop - start <= _FEW:
            for i in range(start + 1, stop):
                word, row = words[i], rows[i]
                j = i
                while j > start and words[j - 1] > word:
                    words[j] = words[j - 1]
                    rows[j] = rows[j - 1]
                    j -= 1
                words[j] = word
                rows[j] = row
            continue
        least = np.uint64(low)
        size = stop - start
        digits = (_count_bits(np.uint64(high) - least) + 10) // np.int64(_DIGIT_BITS)
        counts[:digits] = 0
        for i in range(start, stop):
            distance = np.uint64(words[i]) - least
            for number in range(_DIGITS):  # a constant, so that the loop is unrolled
                counts[number, np.int64(distance & _DIGIT)] += 1
                distance >>= _DIGIT_BITS
        to, fro = words[start:stop], spare_words[:size]
        to_rows, fro_rows = rows[start:stop], spare_rows[:size]
        for number in range(digits):
            if counts[number, 0] == size:
                continue
            _sort_by_digit(to, to_rows, least, np.uint64(number) * _DIGIT_BITS, counts[number], fro, fro_rows)
            to, fro = fro, to
            to_rows, fro_rows = fro_rows, to_rows
            home = not home
        if not home:
            fro[:] = to
            fro_rows[:] = to_rows


@inlined
def _sort_by_digit(
    words: Int64Array,
    rows: RowIds,
    least: np.uint64,
    shift: np.uint64,
    counts: Int64Array,
    out_words: Int64Array,
    out_rows: RowIds,
) -> None:
    """One stable counting-sort pass by the digit above `shift` of the distance from `least`."""
    total = np.int64(0)
    for bucket in range(counts.size):
        count = counts[bucket]
        counts[bucket] = total
        total += count
    for i in range(words.size):
        bucket = np.int64(((np.uint64(words[i]) - least) >> shift) & _DIGIT)
        at = counts[bucket]
        counts[bucket] = at + 1
        out_words[at] = words[i]
        out_rows[at] = rows[i]
