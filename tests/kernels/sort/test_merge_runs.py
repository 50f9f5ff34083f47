"""Merging sorted runs equals a stable sort of all rows."""

from __future__ import annotations

import numpy as np
import pytest

from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.sort import merge_runs as module
from sparkext.kernels.sort.merge_runs import merge_runs


def check(runs: list[np.ndarray]) -> None:
    starts = np.cumsum([0, *(run.size for run in runs)]).astype(np.int64)
    words = np.concatenate([np.zeros(0, np.int64), *(np.sort(run) for run in runs)]).astype(np.int64)
    merged, rows = merge_runs(freeze(words), freeze(starts))
    expected = np.argsort(words, kind="stable")
    assert rows.dtype == np.int32
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(merged, words[expected])


@pytest.mark.parametrize("spread", [1, 3, 1 << 20, 1 << 63])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 64])
def test_any_runs(count: int, spread: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 64)
    draw = np.random.default_rng(count)
    for size in (0, 1, 63, 64, 65, 500):
        sizes = draw.multinomial(size, draw.dirichlet(np.ones(count)))
        low, high = (-(1 << 63), (1 << 63) - 1) if spread == 1 << 63 else (0, spread)
        check([draw.integers(low, high, some) for some in sizes])


def test_no_run_and_empty_ones() -> None:
    check([])
    check([np.zeros(0, np.int64)] * 3)
    check([np.zeros(0, np.int64), np.array([2, 1]), np.zeros(0, np.int64), np.array([1])])


def test_sizes_around_a_piece() -> None:
    draw = np.random.default_rng(1)
    for size in (module.PIECE - 1, module.PIECE, module.PIECE + 1, 3 * module.PIECE):
        check([draw.integers(0, 1000, size // 3), draw.integers(0, 1000, size - size // 3)])


def test_runs_one_behind_the_other() -> None:
    check([np.arange(100), np.arange(100, 200), np.arange(50, 150)])


def test_words_far_apart() -> None:
    """A missing time is as far from all other times."""
    ends = np.array([-(1 << 63), (1 << 63) - 1])
    check([np.concatenate([ends, np.arange(50)]), np.concatenate([np.arange(60), ends]), ends])
