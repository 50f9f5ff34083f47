"""Values are kept in memory or spilled, and read in the order of their positions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from sparkext.storage.spill import SpillBuffer


@pytest.mark.parametrize("moves_all", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("most", [None, 0, 99, 3000, 1 << 20])
def test_values_are_read_in_order(most: int | None, threads: int, moves_all: bool, tmp_path: Path) -> None:
    values = [bytes([number]) * (number % 60) for number in range(250)]
    with closing(SpillBuffer[pa.Buffer](lambda: most, tmp_path, moves_all=moves_all)) as buffer:

        def add(number: int) -> None:
            buffer.add((number // 7, number % 7), pa.py_buffer(values[number]), len(values[number]))

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(add, Random(1).sample(range(250), 250)))
        assert buffer.spilled is (most is not None and most < sum(map(len, values)))
        assert not any(tmp_path.iterdir()), "files have no names"
        assert [value.to_pybytes() for value in buffer.values()] == values


@pytest.mark.parametrize("most", [None, 0, 5])
def test_equal_positions_keep_the_order_of_addition(most: int | None, tmp_path: Path) -> None:
    with closing(SpillBuffer[pa.Buffer](lambda: most, tmp_path)) as buffer:
        for number in range(9):
            buffer.add((0, 0), pa.py_buffer(bytes([number])), 1)
        found = [*buffer.values()]
    assert [value.to_pybytes() for value in found] == [bytes([number]) for number in range(9)], "also after closing"
