"""The contract of resumable probes: any sequence of budgets gives the complete result in order, within each budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, cycle, repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.indexes.all_rows_index import AllRowsIndex
from sparkext.kernels.indexes.matches import START, Cursor, Matches, Pairs, mark_matched, probe
from sparkext.kernels.keys.normalised import NormalisedKeys
from sparkext.kernels.runtime.jit import JIT_ENABLED, freeze
from tests.oracle.joins import Pair, probe_pairs
from tests.support.kernel_inputs import examples

HOWS = ["inner", "left", "semi", "anti"]
LAYOUTS = [width + layout for width in ("", "wide ") for layout in ("ranges of rows", "ranges", "single")]


def build(found: Sequence[Sequence[int]], layout: str) -> tuple[Matches, list[list[int]]]:
    """Return match ranges for `found` in one of the layouts of indexes, and the lists that these ranges represent.

    "ranges" has no row map, so build rows are consecutive; "single" has at most one match; "wide" uses 64-bit row ids.
    """
    dtype = np.int64 if layout.startswith("wide ") else np.int32
    layout = layout.removeprefix("wide ")
    if layout == "single":
        lists = [list(rows[:1]) for rows in found]
        first = [rows[0] if rows else -1 for rows in lists]
        total = sum(len(rows) for rows in lists)
        return Matches(freeze(np.array(first, dtype)), None, None, total, total), lists
    starts = [int(start) for start in np.cumsum([0, *(len(rows) for rows in found)])[:-1]]
    lists = [list(rows) for rows in found]
    rows = None
    if layout == "ranges":
        lists = [list(range(start, start + len(found[i]))) for i, start in enumerate(starts)]
    else:
        rows = freeze(np.array(list(chain.from_iterable(found)), dtype=dtype))
    first = [start if found[i] else -1 for i, start in enumerate(starts)]
    counts = [len(rows) for rows in found]
    return (
        Matches(
            freeze(np.array(first, dtype)),
            freeze(np.array(counts, dtype)),
            rows,
            sum(1 for count in counts if count),
            sum(counts),
        ),
        lists,
    )


def plain(pairs: Pairs, morsel_rows: int) -> list[Pair]:
    """Return one part of the result as pairs of positions."""
    if pairs.probe_rows is None:
        assert pairs.length == morsel_rows, "no probe rows means every row of the morsel"
        probe_rows = list(range(morsel_rows))
    else:
        probe_rows = pairs.probe_rows.tolist()
    build_rows = [-1] * pairs.length if pairs.build_rows is None else pairs.build_rows.tolist()
    assert len(probe_rows) == len(build_rows) == pairs.length
    return [(row, None if other < 0 else other) for row, other in zip(probe_rows, build_rows, strict=True)]


def pieces(matches: Matches, how: str, budgets: Iterator[int]) -> Iterator[tuple[int, list[Pair], Cursor]]:
    """Yield the budget, pairs and cursor of every call until nothing remains."""
    remaining = matches.output_rows(how)
    cursor = START
    while remaining:
        budget = next(budgets)
        pairs, cursor = probe(matches, how, cursor, budget, remaining)
        assert 1 <= pairs.length <= budget
        assert pairs.length == min(budget, remaining), "a piece uses its budget up"
        for ids in (pairs.probe_rows, pairs.build_rows):
            assert ids is None or ids.dtype == matches.first.dtype
        assert (pairs.build_rows is None) == (how in ("semi", "anti"))
        remaining -= pairs.length
        yield budget, plain(pairs, matches.first.size), cursor


def check(found: Sequence[Sequence[int]], how: str, layout: str, budgets: Iterator[int]) -> None:
    matches, lists = build(found, layout)
    expected = probe_pairs(lists, how)
    assert matches.output_rows(how) == len(expected)
    assert [pair for _, piece, _ in pieces(matches, how, budgets) for pair in piece] == expected


match_lists = st.lists(st.lists(st.integers(0, 1000), max_size=5), max_size=25)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("how", HOWS)
@given(found=match_lists, budgets=st.lists(st.integers(1, 9), min_size=1, max_size=8))
@examples(40)
def test_any_sequence_of_budgets(how: str, layout: str, found: list[list[int]], budgets: list[int]) -> None:
    check(found, how, layout, cycle(budgets))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "found",
    [
        [],
        [[]],
        [[5]],
        [[], [], []],
        [[3], [1], [2]],
        [[3], [], [2]],
        [[], [4, 8], [], [1, 5, 9], []],
        [[1, 2, 3, 4, 5, 6, 7]],
        [[], [7]],
        [[7], []],
    ],
)
def test_budgets_around_the_size_of_the_result(how: str, layout: str, found: list[list[int]]) -> None:
    matches, _ = build(found, layout)
    rows = matches.output_rows(how)
    for budget in {1, 2, 3, max(rows - 1, 1), max(rows, 1), rows + 1, 1 << 40}:
        check(found, how, layout, repeat(budget))


def test_the_cursor_stops_in_the_middle_of_a_row() -> None:
    matches, _ = build([[10], [20, 21, 22, 23], [], [30]], "ranges of rows")
    taken = [(piece, cursor) for _, piece, cursor in pieces(matches, "left", repeat(3))]
    assert taken[0] == ([(0, 10), (1, 20), (1, 21)], Cursor(1, 2))
    assert taken[1][0] == [(1, 22), (1, 23), (2, None)]
    assert taken[2][0] == [(3, 30)]


def test_the_cursor_moves_on_where_a_row_is_used_up() -> None:
    matches, _ = build([[10, 11], [20]], "ranges of rows")
    taken = [(piece, cursor) for _, piece, cursor in pieces(matches, "inner", repeat(2))]
    assert taken[0] == ([(0, 10), (0, 11)], Cursor(1, 0))
    assert taken[1][0] == [(1, 20)]


def test_a_cursor_can_be_kept_and_resumed_elsewhere() -> None:
    """The cursor has the whole state: the same call twice gives the same pairs."""
    matches, _ = build([[1, 2, 3], [4, 5]], "ranges of rows")
    _, cursor = probe(matches, "inner", START, 2, 5)
    once, _ = probe(matches, "inner", cursor, 2, 3)
    again, _ = probe(matches, "inner", Cursor(*cursor), 2, 3)
    assert plain(once, 2) == plain(again, 2) == [(0, 3), (1, 4)]


@pytest.mark.parametrize("how", HOWS)
def test_where_every_row_gives_one_nothing_is_copied(how: str) -> None:
    everything, _ = build([[3], [1], [2]], "single")
    nothing, _ = build([[], [], []], "single")
    matches = nothing if how == "anti" else everything
    pairs, _ = probe(matches, how, START, 3, 3)
    assert pairs.probe_rows is None
    if how in ("inner", "left"):
        assert pairs.build_rows is matches.first
    else:
        assert pairs.build_rows is None


@pytest.mark.parametrize("how", ["inner", "left"])
def test_one_row_with_a_million_matches(how: str) -> None:
    """With a budget of a thousand rows, in a thousand parts, without lost or repeated rows."""
    many = 1_000_000 if JIT_ENABLED else 5_000
    budget = 1_000
    matches = AllRowsIndex(many).lookup(NormalisedKeys(1, None, None, None))
    remaining, cursor, calls = matches.output_rows(how), START, 0
    while remaining:
        pairs, cursor = probe(matches, how, cursor, budget, remaining)
        assert pairs.probe_rows is not None
        assert pairs.build_rows is not None
        start = calls * budget
        assert pairs.length == budget
        assert not pairs.probe_rows.any()
        assert np.array_equal(pairs.build_rows, np.arange(start, start + budget))
        remaining -= budget
        calls += 1
        assert cursor == (Cursor(0, start + budget) if remaining else Cursor(1, 0))
    assert calls == many // budget


def test_an_unknown_kind_is_refused() -> None:
    matches, _ = build([[1]], "single")
    with pytest.raises(KeyError):
        matches.output_rows("outer")


@pytest.mark.parametrize("wide", [np.int32, np.int64])
@pytest.mark.parametrize("layout", ["ranges of rows", "ranges", "single"])
@given(data=st.data())
@examples(60)
def test_marks_of_what_matches(layout: str, wide: type, data: st.DataObject) -> None:
    """Keys have some build rows each. Probe rows look up any of them or none, in morsels; marks are only ever added."""
    keys = data.draw(st.lists(st.integers(1, 1 if layout == "single" else 4), max_size=8), "rows of each key")
    starts = np.cumsum([0, *keys])
    total = int(starts[-1])
    rows = np.array(data.draw(st.permutations(range(total)), "build rows by key"), dtype=wide)
    marks = np.zeros(total, np.uint8)
    expected: set[int] = set()
    for _ in range(2):
        probes = data.draw(st.lists(st.integers(-1, len(keys) - 1), max_size=12), "keys looked up")
        first = [int(starts[key]) if key >= 0 else -1 for key in probes]
        counts = [keys[key] if key >= 0 else 0 for key in probes]
        mapped = layout == "ranges of rows"
        matches = Matches(
            freeze(np.array(first, dtype=wide)),
            None if layout == "single" else freeze(np.array(counts, dtype=wide)),
            freeze(rows) if mapped else None,
            sum(count > 0 for count in counts),
            sum(counts),
        )
        mark_matched(matches, marks, overlap=False)
        entries = {entry for start, count in zip(first, counts, strict=True) for entry in range(start, start + count)}
        expected |= {int(rows[entry]) if mapped else entry for entry in entries}
        assert set(np.flatnonzero(marks).tolist()) == expected


@given(data=st.data())
@examples(100)
def test_marks_of_matches_that_overlap(data: st.DataObject) -> None:
    """Ranges of rows, like those of a range join."""
    rows = 9
    ranges = data.draw(
        st.lists(st.tuples(st.integers(-1, rows - 1), st.integers(1, rows)), max_size=6), "start, length"
    )
    first = [start for start, _ in ranges]
    counts = [min(length, rows - start) if start >= 0 else 0 for start, length in ranges]
    mapped = np.arange(rows, dtype=np.int32)[::-1].copy()
    matches = Matches(
        freeze(np.array(first, np.int32)), freeze(np.array(counts, np.int32)), freeze(mapped), 0, sum(counts)
    )
    marks = np.zeros(rows, np.uint8)
    mark_matched(matches, marks, overlap=True)
    entries = {entry for start, count in zip(first, counts, strict=True) for entry in range(start, start + count)}
    assert set(np.flatnonzero(marks).tolist()) == {rows - 1 - entry for entry in entries}
