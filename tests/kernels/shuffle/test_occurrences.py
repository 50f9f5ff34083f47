"""The number of previous occurrences of each hash, against a dictionary."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.occurrences import Occurrences


@pytest.mark.parametrize("distinct", [1, 3, 100, 100_000])
@pytest.mark.parametrize("batches", [[0], [1], [511, 1, 0, 512], [5_000, 1, 20_000]])
def test_like_a_dictionary(distinct: int, batches: list[int]) -> None:
    draw, occurrences, told = random.Random(distinct), Occurrences(), Counter[int]()
    extremes = [0, -1, (1 << 63) - 1, -(1 << 63)]
    for rows in batches:
        hashes = [draw.choice(extremes) if draw.random() < 0.01 else draw.randrange(distinct) for _ in range(rows)]
        expected = []
        for one in hashes:
            expected.append(told[one])
            told[one] += 1
        assert occurrences.number(freeze(np.array(hashes, dtype=np.int64))).tolist() == expected
