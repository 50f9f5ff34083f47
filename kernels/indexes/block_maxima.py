"""Finds the entries of a range that are large enough, without reading all entries.

It keeps maxima of blocks, of blocks of blocks, and so on:

    words (level 0)     3 9 4 1 │ 2 2 8 1 │ 5 0 0 2        blocks of 16 in fact, of 4 in this drawing
    level 1                   9         8         5
    level 2                                       9

Entries are visited from the last to the first. A search scans from its position to the left end of the block. If no
entry there is large enough, it goes one level up and further to the left. At a maximum that is large enough, it goes
down again, to the right end of that block. A neighbouring hit costs a comparison, and a gap between two hits a
logarithm, so that listing k hits takes O(k log n) however few of the entries are hits.

The words are the ends of intervals that are ordered by their starts. The intervals that begin by x are a prefix; a
search finds the intervals of this prefix that end at x or later. `prefix` has the maximum of all blocks up to and
including each block: if it is too small, there are no more hits to the left, and the search ends. A long interval keeps
these maxima large over a long stretch; there the search needs the levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.runtime.jit import freeze, inlined, kernel

_BLOCK_BITS = 4
BLOCK = 1 << _BLOCK_BITS


@dataclass(frozen=True)
class BlockMaxima:
    """The maxima over `words` (int64[n]). `levels`: the concatenation of level 1, level 2, … up to one block.

    `prefix`: int64[blocks of level 1].
    """

    words: Int64Array
    levels: Int64Array
    prefix: Int64Array

    @classmethod
    def over(cls, words: Int64Array) -> BlockMaxima:
        """Compute all levels. They have 1/15 of the size of the words, and the prefixes 1/16."""
        sizes = _level_sizes(words.size)
        levels = np.empty(sum(sizes), dtype=np.int64)
        start, below = 0, words
        for size in sizes:
            level = levels[start : start + size]
            _compute_maxima(below, level)
            start, below = start + size, freeze(level)
        prefix = np.maximum.accumulate(levels[: sizes[0]])
        return cls(freeze(words), freeze(levels), freeze(prefix))


def _level_sizes(size: int) -> list[int]:
    sizes = []
    while size > 1:
        size = -(-size // BLOCK)
        sizes.append(size)
    return sizes or [size]


@kernel
def _compute_maxima(words: Int64Array, maxima: Int64Array) -> None:
    for block in range(maxima.size):
        largest = words[block << _BLOCK_BITS]
        for i in range((block << _BLOCK_BITS) + 1, min((block + 1) << _BLOCK_BITS, words.size)):
            largest = max(largest, words[i])
        maxima[block] = largest


@inlined
def find_last_at_least(
    words: Int64Array, levels: Int64Array, prefix: Int64Array, start: int, stop: int, least: np.int64
) -> int:
    """Return the last position in [start, stop) whose word is at least `least`, or -1."""
    at = stop - 1
    left = max(start, at & ~np.int64(BLOCK - 1))
    while at >= left:
        if words[at] >= least:
            return at
        at -= 1
    if at < start or prefix[at >> _BLOCK_BITS] < least:
        return -1
    # No hit in this block, but there may be one further left: go up.
    block = at >> _BLOCK_BITS
    height = 1
    offset = np.int64(0)
    size = (words.size + BLOCK - 1) >> _BLOCK_BITS
    while True:
        left = block & ~np.int64(BLOCK - 1)
        while block >= left and levels[offset + block] < least:
            block -= 1
        if block >= left:
            break
        if left == 0:
            return -1
        block = (left >> _BLOCK_BITS) - 1
        offset += size
        size = (size + BLOCK - 1) >> _BLOCK_BITS
        height += 1
        if ((block + 1) << (_BLOCK_BITS * height)) <= start:
            return -1
    # Go down again, each time to the last block that is large enough.
    while height > 1:
        height -= 1
        offset = np.int64(0)
        size = (words.size + BLOCK - 1) >> _BLOCK_BITS
        for _ in range(1, height):
            offset += size
            size = (size + BLOCK - 1) >> _BLOCK_BITS
        block = min(((block + 1) << _BLOCK_BITS), size) - 1
        while levels[offset + block] < least:
            block -= 1
    at = min((block + 1) << _BLOCK_BITS, words.size) - 1
    while words[at] < least:
        at -= 1
    return at if at >= start else -1
