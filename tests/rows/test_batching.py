"""Groups have all items in order, and are as large as their limits permit."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from sparkext.rows.batching import group_items

SIZES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30)


@given(items=SIZES, limits=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1))
def test_a_group_is_closed_before_the_item_that_would_exceed_a_limit(
    items: list[tuple[int, int]], limits: list[tuple[int, int]]
) -> None:
    used: list[tuple[int, int]] = []

    def next_limits() -> tuple[int, int]:
        used.append(limits[len(used) % len(limits)])
        return used[-1]

    groups = [*group_items(items, lambda item: item, next_limits)]
    assert [*chain.from_iterable(groups)] == items and all(groups) and len(used) == len(groups)
    for group, following, most in zip(groups, [*groups, []][1:], used, strict=True):
        assert len(group) == 1 or not exceeds(group, most)
        assert not following or exceeds([*group, following[0]], most)


def exceeds(group: list[tuple[int, int]], most: tuple[int, int]) -> bool:
    return any(sum(sizes) > limit for sizes, limit in zip(zip(*group, strict=True), most, strict=True))
