"""Sketches of two sides against all pairs of equal keys."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from sparkext.kernels.keys.normalised import normalise_keys
from sparkext.kernels.shuffle.join_size import WIDTH, add_to_sketch, estimate_pairs
from sparkext.kernels.shuffle.partition import NO_BUCKET, assign_buckets, hash_keys

BUCKETS = 16


def sketched(keys: list[int | None], mask: int = (1 << 64) - 1) -> tuple[np.ndarray, list[int]]:
    sketch = np.zeros(BUCKETS * WIDTH, dtype=np.int64)
    normalised = normalise_keys([pa.array(keys, pa.int64())], [False])
    hashes = hash_keys(normalised, mask)
    buckets = assign_buckets(normalised, hashes, BUCKETS)
    add_to_sketch(hashes, buckets, sketch)
    return sketch, buckets.tolist()


def pairs(probe: list[int | None], build: list[int | None]) -> dict[int, int]:
    """Return the number of pairs of each bucket, by counting every key."""
    rows = Counter(key for key in build if key is not None)
    found: Counter[int] = Counter()
    for key, bucket in zip(probe, sketched(probe)[1], strict=True):
        if bucket != NO_BUCKET:
            found[bucket] += rows[key]
    return found


def test_of_one_key_all_pairs_are_known() -> None:
    probe, build = [5] * 300 + [None] * 9, [5] * 70 + [None]
    found = estimate_pairs(sketched(probe)[0], sketched(build)[0])
    assert {bucket: int(of_bucket) for bucket, of_bucket in enumerate(found) if of_bucket} == pairs(probe, build)
    assert found.sum() == 300 * 70


@pytest.mark.parametrize("seed", range(5))
def test_hot_keys_stand_out(seed: int) -> None:
    """The estimate for the bucket of one hot key is within a tenth, despite 20,000 random pairs of other keys."""
    rng = np.random.default_rng(seed)
    probe = [*rng.integers(0, 5000, 20_000).tolist(), *[7] * 3000]
    build = [*rng.integers(0, 5000, 4_000).tolist(), *[7] * 500]
    found = estimate_pairs(sketched(probe)[0], sketched(build)[0])
    expected = pairs(probe, build)
    hot = max(expected, key=lambda bucket: expected[bucket])
    assert found.argmax() == hot
    assert abs(found[hot] - expected[hot]) < 0.1 * expected[hot]


def test_parts_are_added_up() -> None:
    keys = list(range(100)) * 3
    whole, _ = sketched(keys)
    assert (whole == sketched(keys[:130])[0] + sketched(keys[130:])[0]).all()


def test_no_rows_and_no_common_key() -> None:
    assert estimate_pairs(sketched([])[0], sketched([1, 2])[0]).sum() == 0
    assert (estimate_pairs(sketched([1])[0], sketched([2])[0]) >= 0).all()
    constant = estimate_pairs(sketched([1, 2, 3], mask=0)[0], sketched([4, 5], mask=0)[0])
    assert constant.sum() == 6, "all that a constant hash can say"
