"""Operators that split batches: no row is lost, and no split exceeds its limit."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.build_sides.file import write_build_file
from sparkext.build_sides.published_files import BroadcastBytes
from sparkext.config import read_settings
from sparkext.joins import build_rows_task
from sparkext.joins.build_rows_task import BuildRowsTask
from sparkext.rows.morsels import split_by_bytes
from tests.support.kernel_inputs import examples


@given(lengths=st.lists(st.sampled_from([0, 1, 7, 8, 9, 1000]), max_size=40), limit=st.integers(1, 2000))
@examples(200)
def test_within_bytes(lengths: list[int], limit: int) -> None:
    batch = pa.record_batch({"row": pa.array(range(len(lengths)), pa.int8()), "text": ["x" * n for n in lengths]})
    pieces = list(split_by_bytes(batch, limit))
    assert pa.Table.from_batches(pieces).combine_chunks() == pa.Table.from_batches([batch]).combine_chunks()
    assert all(piece.nbytes <= limit or piece.num_rows == 1 for piece in pieces if batch.num_rows)


DEFAULTS = read_settings({}.get, {})


@dataclass
class Broadcast:
    value: bytes


def test_long_keys_of_a_build_side_go_out_in_batches_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """65,536 keys of 32 KB would be 2 GiB, which exceeds a vector of Spark."""
    monkeypatch.setattr(build_rows_task, "MAX_MORSEL_BYTES", 2_000)
    table = pa.table({"payload": range(100), "key": ["k" * (90 * (row % 7)) + str(row) for row in range(100)]})
    sink = io.BytesIO()
    write_build_file(table, sink)
    schema = pa.schema({"row": pa.int64(), "key": pa.string()})
    task = BuildRowsTask(
        BroadcastBytes("build side", Broadcast(sink.getvalue())), (1,), 3, schema, settings=DEFAULTS, tasks_sharing=1
    )
    batches = list(task([pa.record_batch({"id": [0, 2]}), pa.record_batch({"id": [1]})]))
    assert all(batch.schema == schema and batch.nbytes <= 2_000 for batch in batches)
    assert len(batches) > 3
    rows = [row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]
    assert sorted(rows) == list(enumerate(table["key"].to_pylist()))
