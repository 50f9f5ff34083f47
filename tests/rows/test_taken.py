"""Rows selected by row id."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sparkext.rows.taken import select_rows

ROWS = pa.table({"a": pa.array([3, None, 1, 4, 1]), "b": ["x", "y", None, "z", ""]})


@pytest.mark.parametrize("numbers", [[], [2], [0, 1, 2, 3, 4], [1, 2, 3], [4, 3], [0, 0], [0, 2], [1, 2, 4]])
@pytest.mark.parametrize(
    "rows", [ROWS, ROWS.to_batches()[0], ROWS["a"].combine_chunks()], ids=["table", "batch", "array"]
)
def test_rows_are_those_of_the_numbers(rows: pa.Table, numbers: list[int]) -> None:
    found = select_rows(rows, np.array(numbers, np.int32))
    every = rows.to_pylist()
    assert found.to_pylist() == [every[number] for number in numbers]


def test_rows_that_lie_together_are_not_copied() -> None:
    part = select_rows(ROWS, np.array([1, 2, 3], np.int64))
    assert part["b"].chunk(0).buffers()[2].address == ROWS["b"].chunk(0).buffers()[2].address
