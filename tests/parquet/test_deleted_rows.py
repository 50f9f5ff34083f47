"""Rows that a table format has deleted without rewriting their file."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkext.parquet.deleted_rows import decode_deleted_rows, select_undeleted
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.scan import ScanColumn, ScanSpec, Split

ROWS = 1000


def told(rows: list[int]) -> str:
    """Return row positions in the format in which workers receive them."""
    return base64.b64encode(np.diff(rows, prepend=0).astype("<i8").tobytes()).decode()


@given(st.sets(st.integers(0, 2**40)), st.integers(0, 2**40), st.integers(0, 50))
@settings(deadline=None)
def test_which_rows_are_kept(rows: set[int], first: int, count: int) -> None:
    found = decode_deleted_rows(told(sorted(rows)))
    assert found.tolist() == sorted(rows)
    expected = [row - first for row in range(first, first + count) if row not in rows]
    kept = select_undeleted(found, first, count)
    assert list(range(count) if kept is None else kept) == expected


@pytest.mark.parametrize("limit", [1, 7, 1 << 16])
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("rows", [[], [0], [ROWS - 1], [99, 100, 101], [*range(ROWS)], [*range(0, ROWS, 3)]])
def test_rows_are_counted_over_row_groups_and_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[int], streams: bool, limit: int
) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": range(ROWS), "b": [str(n) for n in range(ROWS)]}), path, row_group_size=100)
    if streams:
        monkeypatch.setattr("sparkext.parquet.decoded_sizes.DecodedSizes.streams", lambda *unit: True)
    number = parse_key_type("int64")
    condition = Expression(
        "<", parse_key_type("bool"), (Expression("column", number, column=0), Expression("literal", number, text="900"))
    )
    spec = ScanSpec((ScanColumn("a"), ScanColumn("b")), 2, condition, True)
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    size = path.stat().st_size
    halves = [Split(str(path), 0, size // 2, (), told(rows)), Split(str(path), size // 2, size, (), told(rows))]
    table = ParquetScan(spec, schema, limit).table(halves, 2, lambda rows, size: None)
    assert table["a"].to_pylist() == [n for n in range(900) if n not in set(rows)]
    assert table["b"].to_pylist() == [str(n) for n in table["a"].to_pylist()]
