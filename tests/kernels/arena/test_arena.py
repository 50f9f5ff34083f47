"""The data structures of an arena against Python's. A small kernel compiles each, as generated code would."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from sparkext.kernels.arena.exact_sums import SUM_WORDS, add_exactly, exact_sum
from sparkext.kernels.arena.integer_sums import add_integer, has_integer_sum, integer_average, integer_sum
from sparkext.kernels.arena.ordered_sets import count_value, greatest, least
from sparkext.kernels.arena.room import FIRST_FREE, ArenaFullError, allocate, release
from sparkext.kernels.arena.words import DOUBLE_ORDER, INTEGER_ORDER, TEXT_ORDER, double_word
from sparkext.kernels.columns.buffers import Int64Array, UInt8Array
from sparkext.kernels.runtime.jit import kernel

ROOT = FIRST_FREE
HEADERS = FIRST_FREE + SUM_WORDS
NO_TEXTS = np.zeros(1, np.int64), np.zeros(0, np.uint8)


def arena(words: int = 1 << 16) -> Int64Array:
    made = np.full(words, -1, dtype=np.int64)
    made[:HEADERS] = 0
    made[0] = HEADERS
    return made


@kernel
def _allocate(arena: Int64Array, words: int) -> int:
    return allocate(arena, words)


@kernel
def _release(arena: Int64Array, at: int, words: int) -> None:
    release(arena, at, words)


@kernel
def _add(arena: Int64Array, value: float, weight: int) -> float:
    add_exactly(arena, ROOT, value, weight)
    return exact_sum(arena, ROOT)


@kernel
def _add_integer(arena: Int64Array, value: int, weight: int) -> tuple[bool, int, float]:
    add_integer(arena, ROOT, value, weight)
    average = integer_average(arena, ROOT) if arena[ROOT + 2] > 0 else 0.0
    return has_integer_sum(arena, ROOT), integer_sum(arena, ROOT), average


@kernel
def _count(
    arena: Int64Array, value: int, weight: int, order: int, starts: Int64Array, data: UInt8Array
) -> tuple[int, int, int]:
    changed = count_value(arena, ROOT, value, weight, order, starts, data)
    if arena[ROOT] == 0:
        return changed, 0, 0
    return changed, least(arena, ROOT), greatest(arena, ROOT)


@kernel
def _word(value: float) -> int:
    return double_word(value)


def test_records_do_not_overlap_and_are_used_again() -> None:
    draw, words, held = random.Random(1), arena(1 << 18), dict[int, int]()
    for _ in range(3000):
        if held and draw.random() < 0.45:
            at = draw.choice([*held])
            assert (words[at : at + held[at]] == at).all()
            _release(words, at, held.pop(at))
        else:
            size = draw.choice([1, 2, 63, 64, 65, 127, 128, 129, 500])
            at = _allocate(words, size)
            held[at] = size
            words[at : at + size] = at
    before = int(words[0])
    for at, size in held.items():
        _release(words, at, size)
    for size in held.values():
        _allocate(words, size)
    assert words[0] == before


@pytest.mark.parametrize(("left", "fits"), [(9, False), (10, True), (11, True)])
def test_an_arena_gets_full(left: int, fits: bool) -> None:
    words = arena(HEADERS + left)
    if fits:
        assert _allocate(words, 10) == HEADERS
    else:
        with pytest.raises(ArenaFullError):
            _allocate(words, 10)


def nearest(values: Counter[float]) -> float:
    exact = sum((Fraction(value) * count for value, count in values.items()), Fraction(0))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@pytest.mark.parametrize("seed", range(6))
def test_sums_are_exact_whatever_comes_and_goes(seed: int) -> None:
    draw, words, there = random.Random(seed), arena(), Counter[float]()
    for _ in range(300):
        if there and draw.random() < 0.4:
            value = draw.choice([*there])
            weight = -draw.randint(1, there[value])
        else:
            power = draw.choice([-1074, -1040, -1022, -60, 0, 1, 60, 1000, 1022])
            value = math.ldexp(draw.choice([1.0, -1.0]) * (1 + draw.random()), power)
            weight = draw.choice([1, 1, 2, 600])
        found = _add(words, value, weight)
        there[value] += weight
        there = +there
        assert found == nearest(there)


def test_what_is_no_number_comes_and_goes() -> None:
    words = arena()
    assert _add(words, 1e20, 1) == 1e20
    assert _add(words, math.inf, 1) == math.inf
    assert math.isnan(_add(words, -math.inf, 2))
    assert _add(words, math.inf, -1) == -math.inf
    assert math.isnan(_add(words, math.nan, 1))
    assert math.isnan(_add(words, -math.inf, -2))
    assert _add(words, math.nan, -1) == 1e20
    assert _add(words, 1.0, 1) == 1e20
    assert _add(words, 1e20, -1) == 1.0
    assert math.copysign(1.0, _add(words, 1.0, -1)) == 1.0


def test_sums_of_many_values_pass_their_carries_on() -> None:
    words = arena()
    _add(words, -1e-300, 1)
    assert _add(words, 1.7e308, 3_000_000) == math.inf
    assert _add(words, 1.7e308, -2_999_999) == 1.7e308
    assert _add(words, 1.7e308, -1) == -1e-300


@pytest.mark.parametrize("seed", range(4))
def test_integer_sums_may_leave_int64_and_come_back(seed: int) -> None:
    draw, words, there = random.Random(seed), arena(), Counter[int]()
    for _ in range(200):
        if there and draw.random() < 0.4:
            value, weight = draw.choice([*there]), -1
        else:
            value, weight = draw.choice([draw.randint(-(1 << 63), (1 << 63) - 1), draw.randint(-9, 9)]), 1
        there[value] += weight
        there = +there
        has, total, average = _add_integer(words, value, weight)
        exact, count = sum(value * times for value, times in there.items()), there.total()
        assert has == (count > 0 and -(1 << 63) <= exact < 1 << 63)
        assert not has or total == exact
        assert not count or average == float(exact) / count


@pytest.mark.parametrize("order", [INTEGER_ORDER, DOUBLE_ORDER, TEXT_ORDER])
def test_ordered_sets_know_the_ends(order: int) -> None:
    draw, words, there = random.Random(order), arena(), Counter[int]()
    texts = sorted({"".join(draw.choices("abä", k=draw.randint(0, 4))).encode() for _ in range(40)}, key=len)
    doubles = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 5e-324, 1e308]
    starts, data = NO_TEXTS
    if order == INTEGER_ORDER:
        values = [draw.randint(-(1 << 63), (1 << 63) - 1) for _ in range(50)]
        ranks = {value: value for value in values}
    elif order == DOUBLE_ORDER:
        values = [_word(value) for value in doubles]
        by_rank = sorted(doubles, key=lambda one: (one != one, one if one == one else 0.0, math.copysign(1.0, one)))
        ranks = {_word(value): rank for rank, value in enumerate(by_rank)}
    else:
        values = [*range(len(texts))]
        ranks = {code: sorted(texts).index(text) for code, text in enumerate(texts)}
        starts = np.cumsum([0, *map(len, texts)]).astype(np.int64)
        data = np.frombuffer(b"".join(texts), dtype=np.uint8)
    for _ in range(600):
        if there and draw.random() < 0.48:
            value, weight = draw.choice([*there]), -1
        else:
            value, weight = draw.choice(values), 1
        was = there[value] > 0
        there[value] += weight
        now = there[value] > 0
        there = +there
        found = _count(words, value, weight, order, starts, data)
        ends = (min(there, key=ranks.__getitem__), max(there, key=ranks.__getitem__)) if there else (0, 0)
        assert found == (now - was, *ends)
