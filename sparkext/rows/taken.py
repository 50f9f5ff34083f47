"""Rows of a table by index."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

from sparkext.kernels.columns.row_ids import RowIds, count_runs

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table, pa.Array)


def select_rows(rows: Rows, numbers: RowIds) -> Rows:
    """Return the rows with these indexes, none of them -1; consecutive rows are not copied."""
    if count_runs(numbers) == 1:
        return rows.slice(int(numbers[0]), numbers.size)
    return rows.take(pa.array(numbers))
