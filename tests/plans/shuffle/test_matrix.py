"""Grid shapes of a join matrix: every pair of parts has one unit, and units read as little as possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.shuffle.bucket_costs import BucketCounts
from sparkext.plans.shuffle.fragments import GridShape
from sparkext.plans.shuffle.grid_size import minimise_perimeter
from sparkext.plans.shuffle.matrix import plan_matrix
from sparkext.plans.shuffle.waves import PARTITION_BUILD_BYTES, TABLES, Share
from tests.support.kernel_inputs import examples

ANY = GridShape(1000, 1000)

sizes = st.integers(0, 10**6)
parts = st.integers(1, 30)


@given(sizes, sizes, parts, st.integers(1, 10**6), st.builds(GridShape, parts, parts))
@examples(300)
def test_no_other_cut_reads_less(probe: int, build: int, units: int, memory: int, most: GridShape) -> None:
    found = minimise_perimeter(probe, build, units, memory, most)
    allowed = [
        cut
        for cut in (
            GridShape(rows, columns) for rows in range(1, most.left + 1) for columns in range(1, most.right + 1)
        )
        if cut.left * cut.right <= units and build / cut.right <= memory
    ]
    least = min((probe / cut.left + build / cut.right for cut in allowed), default=None)
    if least is not None:
        assert probe / found.left + build / found.right == pytest.approx(least)
        assert found in allowed
    else:  # memory requires more units, or more parts than exist
        assert build / found.right <= memory or found.right == most.right


@pytest.mark.parametrize(
    ("probe", "build", "units", "memory", "most", "expected"),
    [
        (100, 100, 16, 1000, ANY, GridShape(4, 4)),
        (1000, 10, 16, 1000, ANY, GridShape(16, 1)),
        (10, 1000, 16, 1000, ANY, GridShape(1, 16)),
        (100, 100, 2, 1000, ANY, GridShape(2, 1)),
        (100, 100, 2, 10, ANY, GridShape(1, 10)),
        (100, 100, 16, 10, GridShape(3, 4), GridShape(3, 4)),
        (100, 100, 16, 1000, GridShape(3, 1), GridShape(3, 1)),
        (0, 0, 16, 1000, ANY, GridShape(16, 1)),
    ],
)
def test_cuts(probe: int, build: int, units: int, memory: int, most: GridShape, expected: GridShape) -> None:
    assert minimise_perimeter(probe, build, units, memory, most) == expected


counts = st.builds(BucketCounts, *[st.integers(0, 10**9)] * 6)


@pytest.mark.parametrize("way", TABLES)
@given(st.none() | counts, st.integers(1, 16), st.builds(GridShape, parts, parts))
@examples(200)
def test_every_pair_of_parts_has_one_unit(way: str, counts: BucketCounts | None, cores: int, most: GridShape) -> None:
    plan = plan_matrix(counts, cores, most, way)
    assert plan.cut is not None
    rows, columns = plan.cut
    expected = {Share(0, row, rows, column, columns) for row in range(rows) for column in range(columns)}
    assert {share for (share,) in plan.partitions} == expected and len(plan.partitions) == len(expected)
    assert rows <= most.left and columns <= most.right
    assert len(plan.before) == len(plan.after) == len(plan.partitions)
    if way == "planned" and counts is not None:
        assert counts.build_bytes / columns <= PARTITION_BUILD_BYTES or columns == most.right


@pytest.mark.parametrize("way", TABLES)
@given(st.none() | counts, st.integers(1, 16), st.builds(GridShape, parts, parts))
@examples(200)
def test_units_of_a_full_join(way: str, counts: BucketCounts | None, cores: int, most: GridShape) -> None:
    """Join units divide the probe side, owner units the build side; or a single unit has everything."""
    plan = plan_matrix(counts, cores, most, way, full=True)
    assert plan.cut is not None
    rows, columns = plan.cut
    assert columns == 1 and rows <= most.left and plan.owners <= most.right
    assert [share for (share,) in plan.partitions] == [Share(0, row, rows, 0, 1) for row in range(rows)]
    assert plan.owners > 0 or rows == 1
    assert len(plan.before) == len(plan.after) == rows + plan.owners
    if way == "planned" and cores <= 2:
        assert (rows, plan.owners) == (1, 0), "two halves of the work gain nothing on two cores"
