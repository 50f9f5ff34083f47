"""Rows of a table by their numbers."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

from sparkext.kernels.row_ids import RowIds, count_runs

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table, pa.Array)


def taken(rows: Rows, numbers: RowIds) -> Rows:
    """Return the rows with these numbers, none of them -1; those that lie one behind the other without a copy."""
    if count_runs(numbers) == 1:
        return rows.slice(int(numbers[0]), numbers.size)
    return rows.take(pa.array(numbers))
