"""The indexes of this package over int64 keys."""

from __future__ import annotations

import pyarrow as pa

from sparkext.kernels.indexes.dense_index import build_dense_index, key_range
from sparkext.kernels.indexes.hash_index import build_hash_index
from sparkext.kernels.indexes.ordered_index import build_ordered_index
from sparkext.kernels.indexes.protocols import JoinIndex
from sparkext.kernels.keys.normalised import NormalisedKeys, normalise_keys


def encoded(keys: pa.Array) -> NormalisedKeys:
    """Return a column of keys, as indexes are built from it and probed with it."""
    return normalise_keys([keys], [False])


def build_dense(keys: NormalisedKeys) -> JoinIndex:
    """Build a dense index over the range of the keys."""
    bounds = key_range(keys)
    assert bounds is not None
    return build_dense_index(keys, *bounds)


BUILDERS = {"hash": build_hash_index, "dense": build_dense, "ordered": build_ordered_index}
