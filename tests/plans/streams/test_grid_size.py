"""Grid shapes of a join matrix: the minimal number of units, and changes that pay off."""

from __future__ import annotations

import math
import random

import pytest

from sparkext.plans.shuffle.fragments import GridShape
from sparkext.plans.shuffle.grid_size import choose_next_shape, minimise_units, moved

V = 800_000


def holds(cut: GridShape, left: float, right: float) -> float:
    return left / cut.left + right / cut.right


@pytest.mark.parametrize(("each", "units"), [(300_000, 1), (1_000_000, 8), (2_000_000, 25), (2_500_000, 42)])
def test_units_of_the_paper(each: int, units: int) -> None:
    cut = minimise_units(each, each, V)
    assert cut.left * cut.right == units and holds(cut, each, each) <= V


def test_no_cut_has_fewer_units() -> None:
    draw = random.Random(1)
    for _ in range(300):
        left, right = (draw.choice([0, 1, V // 2, V, draw.randrange(12 * V)]) for _ in range(2))
        cut = minimise_units(left, right, V)
        assert holds(cut, left, right) <= V * (1 + 1e-9)
        for parts in range(1, 60):
            if left / parts < V:
                assert cut.left * cut.right <= parts * max(1, math.ceil(right / (V - left / parts)))
        if min(left, right) > 2 * V:
            assert cut.left * cut.right <= 1.21 * 4 * left * right / V**2


def test_what_moves() -> None:
    """Against a count of individual rows, fragment by fragment."""
    buckets = 840
    assert moved(GridShape(3, 4), GridShape(3, 4), 100, 100) == pytest.approx(0)
    assert moved(GridShape(1, 1), GridShape(1, 2), 100, 60) == pytest.approx(100 + 30), (
        "one unit more: a copy, and its half"
    )
    assert moved(GridShape(2, 2), GridShape(1, 2), 100, 60) == pytest.approx(2 * 50), "two halves become one"
    for old, new in [((2, 3), (3, 2)), ((4, 1), (5, 2)), ((7, 6), (6, 7)), ((1, 8), (8, 1))]:
        kept = []
        for before, after in zip(old, new, strict=True):
            pieces = sorted(
                (
                    -len(
                        {*range(a * buckets // before, (a + 1) * buckets // before)}
                        & {*range(b * buckets // after, (b + 1) * buckets // after)}
                    ),
                    a,
                    b,
                )
                for a in range(before)
                for b in range(after)
            )
            taken: dict[int, int] = {}
            for share, a, b in pieces:
                if share and a not in taken and b not in taken.values():
                    taken[a] = b
            kept.append({b: -share / buckets for share, a, b in pieces if taken.get(a) == b})
        sent = 0.0
        for i in range(new[0]):
            for j in range(new[1]):
                both = i in kept[0] and j in kept[1]
                sent += 100 * (1 / new[0] - (kept[0][i] if both else 0)) + 60 * (
                    1 / new[1] - (kept[1][j] if both else 0)
                )
        assert moved(GridShape(*old), GridShape(*new), 100, 60) == pytest.approx(sent)


def test_a_cut_stays_while_nothing_is_gained() -> None:
    assert choose_next_shape(GridShape(1, 2), 100, 100, 2, 1 << 40, "planned") == GridShape(1, 2)
    assert choose_next_shape(GridShape(1, 2), 1000, 1, 2, 1 << 40, "planned") == GridShape(2, 1), (
        "the large side is not copied"
    )
    assert choose_next_shape(GridShape(1, 2), 110, 100, 2, 1 << 40, "planned") == GridShape(1, 2), (
        "what moves costs more"
    )
    assert choose_next_shape(GridShape(1, 2), 1000, 1, 2, 1 << 40, "hash") == GridShape(1, 2)
    keyed = GridShape(4, 4, keyed=True)
    assert (
        choose_next_shape(keyed, 1 << 50, 1, 4, 1, "planned") == keyed == choose_next_shape(keyed, 1, 1, 4, 1, "random")
    )


def test_units_that_hold_too_much_are_cut() -> None:
    cut = choose_next_shape(GridShape(1, 2), 4 * V, 4 * V, 2, V, "planned")
    least = minimise_units(4 * V, 4 * V, V)
    assert cut == least and holds(cut, 4 * V, 4 * V) <= V
    assert choose_next_shape(cut, 4 * V, 4 * V, 2, V, "planned") == cut
    assert choose_next_shape(GridShape(1, 2), 10 * V, V // 100, 16, V, "planned") == GridShape(16, 1)


@pytest.mark.parametrize("partitions", [1, 2, 7, 16])
def test_any_growth_is_followed(partitions: int) -> None:
    draw = random.Random(partitions)
    cut, sides = GridShape(1, partitions), [0, 0]
    for _ in range(200):
        sides[draw.random() < 0.7] += draw.randrange(V // 4)
        cut = choose_next_shape(cut, sides[0], sides[1], partitions, V, "planned")
        assert holds(cut, *sides) <= V * (1 + 1e-9) and cut.left * cut.right >= min(partitions, 2)
    assert cut.read_bytes(*sides) > 0
