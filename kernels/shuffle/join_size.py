"""Estimates the number of pairs of equal keys per bucket, from a sketch of each side.

    key ──▶ hash ──▶ bucket, one of `WIDTH` counters of that bucket, +1 or -1

The sum of the products of the two sides' counters, over the counters of a bucket, is an unbiased estimate of its pairs:
equal keys have equal signs, and products of different keys cancel out on average (Cormode & Garofalakis, "Sketching
streams through the net: distributed approximate query tracking", VLDB 2005, the fast AGMS sketch). A key with many rows
on both sides outweighs this noise; finding such keys is the purpose of the sketch. Sketches of parts of a side are
added up.
"""

from __future__ import annotations

import numpy as np

from sparkext.kernels.columns.buffers import Int32Array, Int64Array
from sparkext.kernels.runtime.jit import kernel

WIDTH = 8
"""Counters per bucket. The error is about the root of the product of both sides' sums of squared key counts, over this
number of counters: hot keys stand out."""

_COUNTER_BIT = np.uint64(44)
_SIGN_BIT = np.uint64(43)


def add_to_sketch(hashes: Int64Array, buckets: Int32Array, sketch: Int64Array) -> None:
    """Add keys to `sketch` (int64[buckets * WIDTH]), given their hashes and buckets (both [n]).

    Rows without a bucket do not count.
    """
    _add(hashes, buckets, sketch)


@kernel
def _add(hashes: Int64Array, buckets: Int32Array, sketch: Int64Array) -> None:
    for i in range(buckets.size):
        if buckets[i] >= 0:
            h = np.uint64(hashes[i])
            counter = np.int64((h >> _COUNTER_BIT) & np.uint64(WIDTH - 1))
            sign = np.int64((h >> _SIGN_BIT) & np.uint64(1))
            sketch[np.int64(buckets[i]) * WIDTH + counter] += 1 - 2 * sign


def estimate_pairs(probe: Int64Array, build: Int64Array) -> Int64Array:
    """Return the estimated pairs of each bucket, int64[buckets], from the sketches of both sides."""
    products = probe.astype(np.float64) * build
    return np.maximum(products.reshape(-1, WIDTH).sum(axis=1), 0.0).astype(np.int64)
