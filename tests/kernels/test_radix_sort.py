"""The radix sort against Python's, which is stable too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels import radix_sort
from sparkext.kernels.jit import JIT_ENABLED, frozen
from sparkext.kernels.radix_sort import is_sorted, sort_words
from tests.kernels.support import examples, seeded

MIN, MAX = -(2**63), 2**63 - 1


def words_of(values: Sequence[int]) -> npt.NDArray[np.int64]:
    return frozen(np.array(values, dtype=np.int64))


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
    """Two words that differ in one bit only: no digit is left out, and the sign bit orders the other way round."""
    word = (1 << bit) - (1 << 64 if bit == 63 else 0)
    for values in ([word, 0], [0, word, 0, word], [word, -1, 0]):
        check(values)


def test_digits_that_agree_cost_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    shifts: list[int] = []
    one_pass = radix_sort._pass

    def spy(
        words: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], shift: int, *rest: npt.NDArray[np.int64]
    ) -> None:
        shifts.append(shift)
        one_pass(words, rows, shift, *rest)

    monkeypatch.setattr(radix_sort, "_pass", spy)
    check([3, 1, 2])
    assert shifts == [0]
    shifts.clear()
    check([3 << 22, 1 << 22, 2])
    assert shifts == [0, 22]
    shifts.clear()
    check([1, MIN, -1])
    assert shifts == [0, 11, 22, 33, 44, 55]


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
