"""How many pairs of equal keys two sides have, line by line, of sketches that each makes on its own.

    key ──▶ hash ──▶ line, one of `WIDTH` counters of that line, +1 or -1

Of two sketches the products of equal counters, added up over a line, are an unbiased estimate of its pairs: equal keys
meet with equal signs, and what chance brings together cancels out (Cormode & Garofalakis, "Sketching streams through
the net: distributed approximate query tracking", VLDB 2005, the fast AGMS sketch). A key that has many rows on both
sides outweighs all chance, which is what a sketch is asked for here. Sketches of parts of a side are added up.
"""

from __future__ import annotations

import numpy as np

from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.jit import kernel
from sparkext.kernels.partition import Int32Array

WIDTH = 8
"""Counters of a line. The error is about the root of both sides' sums of squares, over this: hot keys stand out."""

_COUNTER_BIT = np.uint64(44)
_SIGN_BIT = np.uint64(43)


def add_to_sketch(hashes: Int64Array, lines: Int32Array, sketch: Int64Array) -> None:
    """Count keys by hashes and lines, both [n], into `sketch`, int64[lines * WIDTH]. No row without a line counts."""
    _add(hashes, lines, sketch)


@kernel
def _add(hashes: Int64Array, lines: Int32Array, sketch: Int64Array) -> None:
    for i in range(lines.size):
        if lines[i] >= 0:
            h = np.uint64(hashes[i])
            counter = np.int64((h >> _COUNTER_BIT) & np.uint64(WIDTH - 1))
            sign = np.int64((h >> _SIGN_BIT) & np.uint64(1))
            sketch[np.int64(lines[i]) * WIDTH + counter] += 1 - 2 * sign


def pairs_of(probe: Int64Array, build: Int64Array) -> Int64Array:
    """Return the estimated pairs of each line, int64[lines], of the sketches of both sides."""
    products = probe.astype(np.float64) * build
    return np.maximum(products.reshape(-1, WIDTH).sum(axis=1), 0.0).astype(np.int64)
