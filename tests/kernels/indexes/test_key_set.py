"""Sets of dense keys against Python's sets, in memory and through a file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.build_sides.index_builder import build_index
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.kernels.indexes.dense_index import key_range
from sparkext.kernels.indexes.key_set import KeySet, build_key_set
from tests.kernels.indexes.test_indexes import MAX, MIN, normalised, through_file
from tests.support.kernel_inputs import FULL_MASK, examples

SIZES = [1, 7, 8, 9, 63, 64, 65]


def check(build_keys: Sequence[int | None], probe_keys: Sequence[int | None]) -> None:
    """Assert that the set and its mapped copy contain exactly the build keys; null is in neither."""
    keys = normalised(build_keys, pa.int64(), before=3)
    bounds = key_range(keys)
    assert bounds is not None
    index = build_key_set(keys, bounds[0], bounds[1])
    there = set(build_keys) - {None}
    assert index.distinct == len(there)
    for one in (index, through_file(index)):
        found = one.lookup(normalised(probe_keys, pa.int64(), before=5))
        expected = [0 if key in there else -1 for key in probe_keys]
        assert found.first.tolist() == expected
        assert found.counts is None and found.rows is None
        assert found.matched == found.pairs == len(expected) + sum(expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("minimum", [MIN, -5, 0, MAX - 200])
def test_edges_of_the_range(minimum: int, size: int) -> None:
    """Keys just outside are not contained, nor are keys whose distance to the smallest overflows."""
    keys = [minimum, minimum + size - 1, None, minimum + size // 2]
    around = [minimum - 1, *range(minimum, minimum + size), minimum + size, minimum + size + 7, 0, MIN, MAX, None]
    check(keys, [key for key in around if key is None or MIN <= key <= MAX])


@given(st.lists(st.none() | st.integers(-40, 300), min_size=1), st.lists(st.none() | st.integers(-60, 320)))
@examples(50)
def test_like_a_set(build_keys: list[int | None], probe_keys: list[int | None]) -> None:
    """Repeated keys, nulls, any order."""
    check([*build_keys, 12], probe_keys)


def chosen(keys: list[int], rows_matter: bool) -> str:
    recipe = IndexRecipe((0,), (pa.int64(),), (False,), "auto", FULL_MASK, rows_matter=rows_matter)
    return build_index(len(keys), [pa.array(keys)], recipe)[1].kind


def test_what_is_chosen() -> None:
    """A set is used if no join needs rows, even for ranges that are too wide for a row id per value."""
    dense, wide, sparse = [*range(1000)], [*range(0, 100 << 20, 1 << 20)], [0, 1 << 40]
    assert (chosen(dense, True), chosen(dense, False)) == ("dense", "key set")
    several = [*range(0, 200_000 * 100, 100)]
    assert (chosen(several, True), chosen(several, False)) == ("hash", "key set")
    assert (chosen(wide, False), chosen(sparse, False)) == ("hash", "hash")
    index, info = build_index(
        3, [pa.array([5, 5, 9])], IndexRecipe((0,), (pa.int64(),), (False,), "auto", FULL_MASK, rows_matter=False)
    )
    assert isinstance(index, KeySet) and info.bytes == 1
    assert np.array_equal(index.bits, [0b10001])
