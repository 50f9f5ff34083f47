"""The nested loop against a search of all pairs: sizes around blocks and tiles, budgets, excluded rows, errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sparkext.kernels.columns import row_ids
from sparkext.kernels.indexes.matches import START
from sparkext.kernels.indexes.nested_loop import (
    BLOCK,
    FAILED,
    HIT,
    TILE,
    NestedLoop,
    PairError,
    PairTest,
    read_numbers,
)
from sparkext.kernels.runtime.jit import freeze
from tests.support.kernel_inputs import SAMPLES

Int64Array = npt.NDArray[np.int64]

TOO_LARGE, ZERO = 10**6, -1
AMPLE = 1 << 20
LIMITS = {"none": (0, 1), "sparse": (0, 3), "half": (0, 1000), "all": (1000, 1001)}
"""Match densities, as ranges of build values; probe values from 0 to 999 match larger ones."""
SMALL = [0, 1, 7, 8, 9, 17]


@pytest.fixture(scope="module")
def below() -> PairTest:
    """Return a test: probe values match larger build values, and some build values fail.

    It is compiled once for all tests.
    """

    def load(probe: Any, i: int) -> Any:
        return probe[0][i]

    def holds(value: Any, constants: Any, build: Any, j: int) -> Any:
        other = build[0][j]
        return np.uint8(value < other) | (np.uint8((other == TOO_LARGE) | (other == ZERO)) * np.uint8(FAILED))

    return PairTest(load, holds)


def nested(test: PairTest, probe: Sequence[int], build: Sequence[int], **rows: Any) -> NestedLoop:
    arrays = [(freeze(np.array(values, dtype=np.int64)),) for values in (probe, build)]
    return NestedLoop(test, *arrays, **{"morsel_rows": len(probe), "build_side_rows": len(build), **rows})


def pieces(loop: NestedLoop, budget: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the result of each resumption; assert that it uses its budget, and no more."""
    cursor, ended = START, False
    while not ended:
        pairs, cursor, ended = loop.probe("inner", cursor, budget)
        assert pairs.length == budget if not ended else pairs.length <= budget
        assert pairs.probe_rows is not None and pairs.build_rows is not None
        yield list(zip(pairs.probe_rows.tolist(), pairs.build_rows.tolist(), strict=True))


def found_pairs(loop: NestedLoop, budget: int) -> list[tuple[int, int]]:
    return [pair for piece in pieces(loop, budget) for pair in piece]


def pairs_by_search(probe: Sequence[int], build: Sequence[int]) -> list[tuple[int, int]]:
    return [(i, j) for i, value in enumerate(probe) for j, other in enumerate(build) if value < other]


def values(probe_rows: int, build_rows: int, density: str) -> tuple[list[int], list[int]]:
    generator = np.random.default_rng(probe_rows * 10_000 + build_rows)
    probe, build = generator.integers(0, 1000, probe_rows), generator.integers(*LIMITS[density], build_rows)
    return probe.tolist(), build.tolist()


def check(test: PairTest, probe: list[int], build: list[int], budgets: Sequence[int]) -> None:
    expected = pairs_by_search(probe, build)
    loop = nested(test, probe, build)
    for budget in budgets:
        assert sorted(found_pairs(loop, budget)) == expected, budget
    check_any(loop, {i for i, _ in expected})


def check_any(loop: NestedLoop, with_match: set[int]) -> None:
    matches = loop.any()
    assert matches.first.tolist() == [0 if row in with_match else -1 for row in range(loop.morsel_rows)]
    assert matches.counts is None and matches.rows is None
    assert matches.matched == matches.pairs == len(with_match)


@pytest.mark.parametrize("density", LIMITS)
@pytest.mark.parametrize("build_rows", SMALL)
def test_small_sides(below: PairTest, build_rows: int, density: str) -> None:
    for probe_rows in SMALL if build_rows < 9 else (1, 3):
        check(below, *values(probe_rows, build_rows, density), budgets=(1, 2, 7, AMPLE))


@pytest.mark.parametrize("build_rows", [TILE - 1, TILE, TILE + 1])
@pytest.mark.parametrize("probe_rows", [BLOCK - 1, BLOCK, BLOCK + 1])
def test_sizes_around_blocks_and_tiles(below: PairTest, probe_rows: int, build_rows: int) -> None:
    check(below, *values(probe_rows, build_rows, "sparse"), budgets=(1, 10, AMPLE))
    check(below, *values(probe_rows, build_rows, "all"), budgets=(TILE, 10_007, AMPLE))


def test_sizes_around_several_blocks_and_tiles(below: PairTest) -> None:
    probe, build = values(2 * BLOCK + 3, 2 * TILE + 5, "sparse")
    check(below, probe, build, budgets=(97, AMPLE))
    # Each row finds its first match in another tile than the previous row.
    build = [1] * TILE + [500] * TILE + [1000]
    check(below, [0, 999, 400, 600, 1000, 0], build, budgets=(1001, AMPLE))


def test_a_budget_that_is_used_up_with_the_last_pair(below: PairTest) -> None:
    assert [len(piece) for piece in pieces(nested(below, [0] * 3, [1] * 4), 4)] == [4, 4, 4]
    assert [len(piece) for piece in pieces(nested(below, [0] * 3, [1] * 4), 12)] == [12]


@pytest.mark.parametrize("narrow", [0, 1 << 31], ids=["wide", "narrow"])
def test_rows_have_the_numbers_that_they_are_given(
    below: PairTest, monkeypatch: pytest.MonkeyPatch, narrow: int
) -> None:
    monkeypatch.setattr(row_ids, "NARROW_ROWS", narrow)
    probe, build = [5, 1, 9], [4, 6, 2, 7]
    probe_rows, build_rows = (freeze(np.array(rows, row_ids.row_id_dtype(9))) for rows in ([1, 4, 5], [0, 2, 3, 8]))
    expected = [(int(probe_rows[i]), int(build_rows[j])) for i, j in pairs_by_search(probe, build)]
    for given in ((probe_rows, build_rows), (probe_rows, None), (None, build_rows)):
        loop = nested(below, probe, build, morsel_rows=7, build_side_rows=9, probe_rows=given[0], build_rows=given[1])
        pairs = expected
        if given[0] is None:
            pairs = [(probe_rows.tolist().index(i), j) for i, j in pairs]
        if given[1] is None:
            pairs = [(i, build_rows.tolist().index(j)) for i, j in pairs]
        for budget in (1, 3, AMPLE):
            assert sorted(found_pairs(loop, budget)) == pairs
        check_any(loop, {i for i, _ in pairs})


def test_a_cursor_ends_behind_all_rows_of_the_morsel(below: PairTest) -> None:
    """Including rows that are not tested, because metrics count rows by the cursor."""
    loop = nested(below, [1, 2], [5], morsel_rows=9, probe_rows=freeze(np.array([3, 4], np.int32)))
    _, cursor, ended = loop.probe("inner", START, AMPLE)
    assert (ended, cursor.row) == (True, 9)


@pytest.mark.parametrize("how", ["left", "semi", "anti", "existence"])
def test_it_gives_out_pairs_and_nothing_else(below: PairTest, how: str) -> None:
    with pytest.raises(ValueError, match=f"not a {how} join"):
        nested(below, [1], [2]).probe(how, START, 1)


@pytest.mark.parametrize("bad", [[TOO_LARGE], [ZERO], [ZERO, TOO_LARGE]], ids=["a hit", "a miss", "both"])
def test_what_fails_raises(below: PairTest, bad: list[int]) -> None:
    """In one of many pairs, after misses: the first failing pair is reported."""

    def fail(probe: Sequence[np.generic], build: Sequence[np.generic]) -> bool:
        raise PairError(f"{probe} and {build}")

    below = below.bound((), fail)
    build = [*[0] * (TILE + 5), *bad, 9]
    loop, last = nested(below, [1, 2, 3], build), nested(below, [1] * len(bad), bad)
    for run in (
        lambda: loop.probe("inner", START, AMPLE),
        loop.any,
        lambda: below.each(last.probe_columns, last.build_columns, len(bad)),
    ):
        with pytest.raises(PairError) as raised:
            run()
        assert str(raised.value) == f"{[np.int64(1)]} and {[np.int64(bad[0])]}"


@pytest.mark.parametrize("before", [1, TILE])
def test_a_row_that_has_its_match_is_not_tried_any_further(below: PairTest, before: int) -> None:
    build = [*[5] * before, ZERO]
    check_any(nested(below, [1, 2], build), {0, 1})
    for probe, other in (([1, 7], build), ([1], build[::-1])):
        with pytest.raises(PairError):
            nested(below, probe, other).any()


def test_pairs_on_which_a_test_fails_are_decided_one_by_one(below: PairTest) -> None:
    """Also in the second tile, and with further conditions; no pair is decided after its row's match."""
    decided: list[tuple[int, int]] = []

    def decide(probe: Sequence[np.generic], build: Sequence[np.generic]) -> bool:
        decided.append((int(probe[0]), int(build[0])))
        return int(build[0]) == ZERO

    below = below.bound((), decide)
    build = [*[0] * TILE, TOO_LARGE, ZERO, ZERO, 5]
    loop = nested(below, [1, 7], build)
    assert found_pairs(loop, AMPLE) == [(0, TILE + 1), (0, TILE + 2), (0, TILE + 3), (1, TILE + 1), (1, TILE + 2)]
    assert decided == [(value, other) for value in (1, 7) for other in (TOO_LARGE, ZERO, ZERO)]
    decided.clear()
    check_any(loop, {0, 1})
    assert decided == [(value, other) for value in (1, 7) for other in (TOO_LARGE, ZERO)]
    decided.clear()
    matches = loop.any(lambda pairs: np.array([row == TILE + 2 for row in pairs.build_rows]))
    assert matches.matched == 2
    assert decided == [(value, other) for value in (1, 7) for other in (TOO_LARGE, ZERO, ZERO)]


def test_pairs_that_follow_the_match_of_their_row_do_not_fail(below: PairTest) -> None:
    loop = nested(below, [1, 1, 2, 2, 3], [5, ZERO, 5, 5, ZERO])
    tested = partial(below.each, loop.probe_columns, loop.build_columns, 5)
    assert (tested(np.array([0, 0, 1, 1, -1])) == HIT).tolist() == [True, False, True, True, False]
    for rows in (None, np.array([0, 1, 2, 2, -1]), np.array([0, 0, 1, 1, 2])):
        with pytest.raises(PairError):
            tested(rows)


def test_each_row_against_its_own(below: PairTest) -> None:
    loop = nested(below, [1, 5, 3, 0], [2, 5, 4, 0])
    assert below.each(loop.probe_columns, loop.build_columns, 4).tolist() == [HIT, 0, HIT, 0]
    assert below.each(loop.probe_columns, loop.build_columns, 0).tolist() == []


DTYPES = {
    "bool": "u1",
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i8",
    "float32": "f4",
    "float64": "f8",
    "date": "i4",
    "timestamp": "i8",
    "timestamp_ntz": "i8",
    "daytime_interval": "i8",
    "decimal(7,2)": "i8",
    "decimal(18,0)": "i8",
}


@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("name", DTYPES)
def test_columns_as_numbers(name: str, before: int, with_nulls: bool) -> None:
    sample = SAMPLES[name]
    picks = [*range(len(sample.raw))] * 2
    valid = [not with_nulls or number % 3 != 1 for number in range(len(picks))]
    got = read_numbers(sample.array(picks, valid, before, after=2))
    assert got.dtype == DTYPES[name] and got.size == len(picks)
    assert got.flags.c_contiguous and not got.flags.writeable  # otherwise, the test would be compiled once more
    bits = got.view(f"u{got.itemsize}") if name.startswith("float") else got
    shown = [number for number, present in zip(bits.tolist(), valid, strict=True) if present]
    assert shown == [sample.raw[pick] for pick, present in zip(picks, valid, strict=True) if present]
    assert read_numbers(sample.array([], [])).size == 0
