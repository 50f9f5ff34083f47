"""Grid shapes: every pair of rows meets in exactly one unit, and partitions receive the rows that their units need."""

from __future__ import annotations

import pytest

from sparkext.plans.shuffle.fragments import BUCKETS, LEFT, RIGHT, GridShape, GridShapes, choose_first_shape

CUTS = [
    GridShape(1, 1),
    GridShape(1, 2),
    GridShape(3, 1),
    GridShape(3, 5),
    GridShape(7, 7),
    GridShape(4, 4, keyed=True),
    GridShape(13, 13, keyed=True),
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_every_bucket_is_in_one_fragment(cut: GridShape, side: int) -> None:
    buckets = [bucket for number in range(cut.fragments(side)) for bucket in cut.buckets(side, number)]
    assert buckets == list(range(BUCKETS))
    for number in range(cut.fragments(side)):
        found = cut.buckets(side, number)
        assert cut.having(side, found) == [number] == cut.having(side, range(found.start, found.start + 1))
        assert cut.having(side, range(found.stop - 1, min(found.stop + 1, BUCKETS)))[0] == number
    assert cut.having(side, range(BUCKETS)) == list(range(cut.fragments(side)))
    assert cut.having(side, range(5, 5)) == []


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_pairs_meet_once(cut: GridShape) -> None:
    met = [pair for pair in cut.units if pair]
    every = [(i, j) for i in range(cut.left) for j in range(cut.right) if not cut.keyed or i == j]
    assert sorted(met) == every


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("partitions", [1, 2, 3, 16, 1000])
def test_partitions_have_what_their_units_need(cut: GridShape, partitions: int) -> None:
    for side in (LEFT, RIGHT):
        for fragment in range(cut.fragments(side)):
            needed = {unit % partitions for unit, pair in enumerate(cut.units) if pair[side] == fragment}
            assert cut.partitions(side, fragment, partitions) == sorted(needed)
            assert cut.writer(side, fragment, partitions) in needed


def test_cuts_over_time() -> None:
    cuts = (
        GridShapes(((0, GridShape(1, 2)),))
        .derive_next(5, GridShape(1, 2))
        .derive_next(7, GridShape(2, 3))
        .derive_next(9, GridShape(3, 3))
    )
    assert [cuts.at(batch) for batch in (0, 6, 7, 8, 9, 100)] == [GridShape(1, 2)] * 2 + [GridShape(2, 3)] * 2 + [
        GridShape(3, 3)
    ] * 2
    assert GridShapes.from_data(cuts.to_data()) == cuts and len(cuts.since) == 3


@pytest.mark.parametrize(
    ("partitions", "cut"), [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (6, (2, 3)), (7, (1, 7)), (12, (3, 4))]
)
def test_the_first_cut_has_a_unit_for_each_partition(partitions: int, cut: tuple[int, int]) -> None:
    assert choose_first_shape(partitions, keyed=False) == GridShape(*cut)
    assert choose_first_shape(partitions, keyed=True) == GridShape(partitions, partitions, keyed=True)
