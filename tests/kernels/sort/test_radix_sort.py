"""The radix sort against Python's sort; both are stable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.runtime.jit import JIT_ENABLED, freeze
from sparkext.kernels.sort import radix_sort
from sparkext.kernels.sort.radix_sort import PIECE, is_sorted, sort_segments, sort_words
from tests.support.kernel_inputs import examples, seeded

MIN, MAX = -(2**63), 2**63 - 1


def words_of(values: Sequence[int]) -> npt.NDArray[np.int64]:
    return freeze(np.array(values, dtype=np.int64))


def check(values: Sequence[int], rows: Sequence[int] | None = None) -> None:
    rows = list(range(len(values))) if rows is None else rows
    words, ids = words_of(values), words_of(rows)
    sorted_words, sorted_rows = sort_words(words, ids)
    expected = sorted(zip(values, rows, strict=True), key=lambda pair: pair[0])
    assert list(zip(sorted_words.tolist(), sorted_rows.tolist(), strict=True)) == expected
    assert words.tolist() == list(values), "the input stays as it is"
    assert not sorted_words.flags.writeable
    assert not sorted_rows.flags.writeable


@given(
    values=st.one_of(
        st.lists(st.integers(MIN, MAX), max_size=50),
        st.lists(st.sampled_from([MIN, MIN + 1, -1, 0, 1, MAX - 1, MAX]), max_size=50),
        st.lists(st.integers(-5000, 5000), max_size=50),
        st.lists(st.integers(0, 3).map(lambda digit: digit << 44), max_size=50),
    )
)
@examples(120)
def test_any_words(values: list[int]) -> None:
    check(values)
    check(values, [7 * row % 13 for row in range(len(values))])


@pytest.mark.parametrize("size", [0, 1, 2, 2047, 2048, 2049])
def test_sizes(size: int) -> None:
    if size > 1000 and not JIT_ENABLED:
        pytest.skip("too many rows for plain Python")
    random = seeded(size)
    check([random.randint(MIN, MAX) for _ in range(size)])
    check([random.randint(-100, 100) for _ in range(size)])
    check([5] * size)


@pytest.mark.parametrize("bit", range(64))
def test_every_bit_counts(bit: int) -> None:
    """Two words that differ in a single bit: no digit is skipped, and the sign bit has the opposite order."""
    word = (1 << bit) - (1 << 64 if bit == 63 else 0)
    for values in ([word, 0], [0, word, 0, word], [word, -1, 0]):
        check(values)


SHAPES: dict[str, Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]] = {
    "any": lambda words: words,
    "few distinct": lambda words: words % 3,
    "all but one alike": lambda words: np.where(np.arange(words.size) == words.size // 2, MIN, 7),
    "far from the one that is far": lambda words: np.where(
        np.arange(words.size) == words.size // 2, MIN, words % 10_000
    ),
    "descending": lambda words: -np.arange(words.size),
    "ends of the range": lambda words: np.where(words % 2 == 0, MIN, MAX),
}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 3])
def test_more_words_than_a_piece(size: int, shape: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not JIT_ENABLED:
        size //= 1000
        monkeypatch.setattr(radix_sort, "PIECE", PIECE // 1000)
    generator = np.random.default_rng(size)
    words = SHAPES[shape](generator.integers(MIN, MAX, size))
    order = np.argsort(words, kind="stable")
    sorted_words, rows = sort_words(freeze(words), freeze(np.arange(size, dtype=np.int32)), threads)
    assert np.array_equal(sorted_words, words[order])
    assert np.array_equal(rows, order)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("longest", [1, 2, 64, 65, 3000, PIECE + 1])
def test_segments(longest: int, threads: int) -> None:
    """Each segment is sorted separately, including empty ones; ties retain their order."""
    size = min(4 * longest, 100_000) if JIT_ENABLED else min(4 * longest, 400)
    generator = np.random.default_rng(longest)
    ends = np.cumsum(generator.integers(0, longest + 1, 100))
    starts = np.concatenate([[0], ends[ends < size], [size, size]]).astype(np.int32)
    words = generator.integers(-longest, longest, size) << generator.integers(0, 40)
    rows = generator.permutation(size).astype(np.int32)
    segments = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    order = np.lexsort([words, segments])
    expected = words[order], rows[order]
    sort_segments(words, rows, freeze(starts), threads)
    assert np.array_equal(words, expected[0])
    assert np.array_equal(rows, expected[1])


def test_sorted_words_are_returned_as_they_came() -> None:
    words, rows = words_of([MIN, -1, -1, 0, MAX]), words_of([4, 3, 2, 1, 0])
    same_words, same_rows = sort_words(words, rows)
    assert same_words is words
    assert same_rows is rows


@pytest.mark.parametrize(
    "values, ascending",
    [
        ([], True),
        ([3], True),
        ([1, 1], True),
        ([MIN, MAX], True),
        ([MAX, MIN], False),
        ([0, -1], False),
        ([1, 2, 3, 2], False),
    ],
)
def test_is_sorted(values: list[int], ascending: bool) -> None:
    assert is_sorted(words_of(values)) == ascending
