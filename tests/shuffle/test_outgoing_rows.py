"""Outgoing rows of a task: the file, and its metadata; with several threads, and without memory."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.sinks import outgoing_rows
from sparkext.engine.sinks.gathered_rows import GatheredRows
from sparkext.engine.sinks.outgoing_rows import RESULT, OutgoingFile, OutgoingRows
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.shuffle.join_size import WIDTH
from sparkext.plans.pipeline.spec import ColumnRef
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.rows.row_set import RowSet
from sparkext.shuffle.map_output import Segment, rows_of_segments
from sparkext.shuffle.partitioning import Partitioning
from sparkext.shuffle.received_partition import FileRows, PartitionSchemas

BUCKETS = 16
ROWS = 5000
TABLE = pa.table(
    {
        "c0": pa.array([None if n % 10 == 0 else n % 700 for n in range(ROWS)], pa.int64()),
        "c1": pa.array([None if n % 7 == 0 else f"text {n}" for n in range(ROWS)]),
    }
)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(OutgoingFile, "target", lambda self: tmp_path / "map")
    return tmp_path / "map"


def sent(
    keeps_unmatchable: bool = True, threads: int = 1, step: int = 1000, table: pa.Table = TABLE
) -> dict[str, np.ndarray]:
    """Send the table in morsels; return the metadata of the sink."""
    partitioning = Partitioning(
        (0,), (pa.int64(),), (False,), RoutingTable(BUCKETS, BUCKETS), keeps_unmatchable, (1 << 64) - 1
    )
    rows = GatheredRows([ColumnRef(0, 0), ColumnRef(0, 1)], TABLE.schema, [])
    sink = OutgoingRows(rows, OutgoingFile(partitioning, "run"), lambda: None)

    def process(batch: pa.RecordBatch) -> None:
        morsel = RowSet.of_morsel([Column.of(column) for column in batch.columns], batch.num_rows)
        assert not list(sink.process(morsel, OperatorBudget.aside(sink.row_bytes, 300)))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(process, table.to_batches(max_chunksize=step)))
    [told] = sink.finish(OperatorBudget.aside(sink.row_bytes, 300))
    assert told.schema == RESULT and told.num_rows == 1
    return {name: np.frombuffer(told.column(name)[0].as_py(), "<i8") for name in told.schema.names}


def rows_of(path: Path, lengths: np.ndarray) -> list[list[dict[str, Any]]]:
    ends = np.cumsum(lengths)
    segments = [Segment(str(path), int(end - size), int(size)) for end, size in zip(ends, lengths, strict=True)]
    return [[row for batch in rows_of_segments([one], TABLE.schema) for row in batch.to_pylist()] for one in segments]


def multiset(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(map(repr, rows))


@pytest.mark.parametrize("scarce", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_all_rows_arrive_bucket_by_bucket(
    target: Path, threads: int, scarce: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if scarce:
        monkeypatch.setattr(outgoing_rows, "bytes_to_gather", lambda buckets, free: 1)
        monkeypatch.setattr(outgoing_rows, "share_of_headroom", lambda: 0)
    told = sent(threads=threads)
    buckets = rows_of(target, told["bytes"])
    assert told["bytes"].sum() == target.stat().st_size
    assert [len(bucket) for bucket in buckets] == told["rows"].tolist()
    assert told["sizes"].sum() >= 8 * ROWS and ((told["sizes"] > 0) == (told["rows"] > 0)).all()
    assert multiset([row for bucket in buckets for row in bucket]) == multiset(TABLE.to_pylist())
    homes: dict[int, set[int]] = {}
    for number, bucket in enumerate(buckets):
        for row in bucket:
            homes.setdefault(row["c0"], set()).add(number)
    assert all(len(found) == 1 for found in homes.values())


def test_a_sum_tells_rows_of_other_keys_apart(target: Path) -> None:
    """Rows in another order have the same sum. An existing file is overwritten."""
    target.touch()
    expected = sent()["checksum"]
    backwards = TABLE.take(pa.array(range(ROWS)[::-1]))
    assert expected.size == 1 and sent(threads=4, step=70, table=backwards)["checksum"] == expected
    for other in (TABLE.slice(1, ROWS - 2), TABLE.set_column(0, "c0", pa.array(range(1, ROWS + 1), pa.int64()))):
        assert sent(table=other)["checksum"] != expected


def test_rows_that_match_nothing_stay(target: Path) -> None:
    told = sent(keeps_unmatchable=False)
    rows = [row for bucket in rows_of(target, told["bytes"]) for row in bucket]
    assert multiset(rows) == multiset([row for row in TABLE.to_pylist() if row["c0"] is not None])
    assert told["sketch"].size == BUCKETS * WIDTH and abs(told["sketch"]).sum() > 0


def test_a_partition_finds_its_rows_by_a_text(target: Path) -> None:
    """A JSON text locates the rows: buckets of two sides, and rows shared with other partitions.

    The text may have no segments, and may be missing.
    """
    told = sent()
    starts = np.cumsum(told["bytes"]) - told["bytes"]
    places = [[str(target), int(starts[bucket]), int(told["bytes"][bucket])] for bucket in range(BUCKETS)]
    text = json.dumps(
        {
            "probe": places[:3],
            "marks": places[1:2],
            "builds": {"0": [], "1": places[3:], "2": []},
            "copies": places[2:4],
        }
    )
    schemas = PartitionSchemas(TABLE.schema, dict.fromkeys(range(3), TABLE.schema), owns_build=False)
    rows = FileRows([pa.record_batch([pa.array([text])], names=["c0"])], schemas)
    buckets = rows_of(target, told["bytes"])
    for found, some in (
        (rows.probe(), buckets[:3]),
        (rows.build(1), buckets[3:]),
        (rows.copies(), buckets[2:4]),
        (rows.marks(range(9)), buckets[1:2]),
    ):
        assert [row for batch in found for row in batch.to_pylist()] == [row for bucket in some for row in bucket]
    nothing = FileRows([], schemas)
    none = (rows.build(2), nothing.probe(), nothing.build(1), nothing.copies(), nothing.marks(range(9)))
    assert not any(map(list, none))
    rows.close()
