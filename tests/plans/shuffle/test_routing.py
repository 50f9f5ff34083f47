"""The routing table of an exchange, compared with a table that lists every bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.shuffle.routing import RoutingTable

partitions_of_a_bucket = st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True).map(tuple)
changes = st.dictionaries(st.integers(0, 11), partitions_of_a_bucket, max_size=12)


@given(st.lists(changes, max_size=4))
def test_buckets_are_where_they_were_last_sent(sent: list[dict[int, tuple[int, ...]]]) -> None:
    table = RoutingTable(12, 5)
    everywhere = {bucket: (bucket % 5,) for bucket in range(12)}
    for number, moves in enumerate(sent, 1):
        table, everywhere = table.derive_next(moves), {**everywhere, **moves}
        assert table.version == number
        assert {bucket: table.partitions_of(bucket) for bucket in range(12)} == everywhere
        for partition in range(5):
            assert sorted(table.buckets_of(partition)) == [
                bucket for bucket in range(12) if partition in everywhere[bucket]
            ]


def test_buckets_that_come_home_leave_no_entry() -> None:
    away = RoutingTable(10_000, 1000).derive_next({7: (8,), 1007: (7, 9)})
    assert away.moved == {7: (8,), 1007: (7, 9)}
    assert away.derive_next({7: (7,)}).moved == {1007: (7, 9)}
    assert away.derive_next({7: (7,), 1007: (7,)}).moved == {}


@pytest.mark.parametrize(
    ("buckets", "partitions", "moved"),
    [
        (0, 1, {}),
        (1, 0, {}),
        (4, 2, {4: (0,)}),
        (4, 2, {-1: (0,)}),
        (4, 2, {0: (2,)}),
        (4, 2, {0: (-1,)}),
        (4, 2, {0: ()}),
        (4, 2, {0: (1, 1)}),
    ],
)
def test_what_is_no_table(buckets: int, partitions: int, moved: dict[int, tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"needs a bucket and a partition|cannot go to partitions"):
        RoutingTable(buckets, partitions, moved)
