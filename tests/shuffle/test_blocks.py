"""Rows are packed into blocks and unpacked: with one-row budgets, on disk, and in any order."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkext.build_sides import rows_on_disk
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.plans.pipeline.spec import MARKS
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.shuffle import outgoing_rows, packed_rows
from sparkext.shuffle import received_partition as received_partition_module
from sparkext.shuffle.blocks import FRAMES, create_frame, create_index_frames, read_frames
from sparkext.shuffle.outgoing_rows import create_outgoing_blocks
from sparkext.shuffle.packed_rows import BlockHeader, RowUnpacker, blocks_of, keep_order
from sparkext.shuffle.partitioning import Partitioning, choose_bucket_count
from sparkext.shuffle.received_partition import BlockRows, Partition, PartitionRows, PartitionSchemas

RNG = np.random.default_rng(3)
ROWS = 3000
TABLE = pa.table(
    {
        "k": pa.array(RNG.integers(0, 500, ROWS), pa.int64(), mask=RNG.random(ROWS) < 0.1),
        "s": pa.array([None if n % 9 == 0 else "text " * (n % 5) for n in range(ROWS)]),
        "l": pa.array([[n, None] if n % 3 else None for n in range(ROWS)]),
        "b": pa.array([n % 2 == 0 for n in range(ROWS)]),
        "d": pa.array(range(ROWS), pa.decimal128(20, 2)),
    }
)
RECIPE = IndexRecipe((0,), (pa.int64(),), (False,), "auto", (1 << 64) - 1)


def partitioning(partitions: int, keeps_unmatchable: bool = True, mask: int = (1 << 64) - 1) -> Partitioning:
    table = RoutingTable(choose_bucket_count(partitions), partitions)
    return Partitioning((0,), (pa.int64(),), (False,), table, keeps_unmatchable, mask)


def sent(partitions: int, batches: list[pa.RecordBatch], task: int = 0, **options: Any) -> list[tuple[int, pa.Buffer]]:
    return [*create_outgoing_blocks(batches, partitioning(partitions, **options), task, lambda: None)]


def rows_in(blocks: list[pa.Buffer]) -> list[dict[str, Any]]:
    return [row for block in blocks for row in RowUnpacker(TABLE.schema).unpack(block).to_pylist()]


def block_of(rows: pa.RecordBatch) -> pa.Buffer:
    [(_, block)] = blocks_of(rows, keep_order(rows.num_rows))
    return block


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["d"])


@pytest.fixture(params=["as it is", "a row at a time"])
def budget(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "a row at a time":
        monkeypatch.setattr(outgoing_rows, "_MOST_BYTES", 1)
        monkeypatch.setattr(packed_rows, "BLOCK_BYTES", 1)
    return str(request.param)


@pytest.mark.parametrize("partitions", [1, 2, 7, 5000])
@pytest.mark.usefixtures("budget")
def test_every_row_goes_to_the_partition_of_its_key(partitions: int) -> None:
    found = sent(partitions, TABLE.to_batches(max_chunksize=700), task=partitions + 3)
    assert in_order(rows_in([block for _, block in found])) == TABLE.to_pylist()
    homes: dict[int | None, set[int]] = {}
    for partition, block in found:
        for row in rows_in([block]):
            homes.setdefault(row["k"], set()).add(partition)
    assert all(len(partitions_of_key) == 1 for partitions_of_key in homes.values())
    assert homes[None] == {(partitions + 3) % partitions}, "what matches nothing stays with its task"
    assert partitions == 1 or len({partition for key in homes for partition in homes[key]}) > 1


def test_rows_that_match_nothing_are_left_out() -> None:
    found = sent(3, TABLE.to_batches(), keeps_unmatchable=False)
    assert in_order(rows_in([block for _, block in found])) == [
        row for row in TABLE.to_pylist() if row["k"] is not None
    ]


@pytest.mark.parametrize("rows", [0, 1])
def test_hardly_any_rows(rows: int) -> None:
    assert (
        rows_in([block for _, block in sent(4, TABLE.slice(0, rows).to_batches())]) == TABLE.slice(0, rows).to_pylist()
    )
    assert sent(4, []) == []


def test_a_constant_hash_fills_one_partition() -> None:
    assert len({partition for partition, _ in sent(8, TABLE.to_batches(), keeps_unmatchable=False, mask=0)}) == 1


def test_blocks_have_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_rows, "BLOCK_BYTES", 10_000)
    sizes = [BlockHeader.of(block).size for _, block in sent(2, TABLE.to_batches())]
    assert len(sizes) > 10 and max(sizes) <= 10_000


def received(blocks: list[tuple[bool, pa.Buffer]]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(blocks), 7):
        some = blocks[start : start + 7]
        columns = [
            pa.array([0] * len(some), pa.int32()),
            pa.array([int(is_build) for is_build, _ in some], pa.int32()),
            pa.array([block.to_pybytes() for _, block in some], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=FRAMES)


def test_frames() -> None:
    frames = [create_frame(7, 3, pa.py_buffer(b"block")), *create_index_frames([5, 6])]
    assert [frame["partition"][0].as_py() for frame in frames] == [7, 5, 6]
    found = [
        (tag, block.to_pybytes())
        for tag, block in read_frames([pa.Table.from_batches(frames).combine_chunks().to_batches()[0]])
    ]
    assert found == [(3, b"block"), (-1, b""), (-2, b"")]


@pytest.mark.parametrize("owns_build", [False, True])
@pytest.mark.parametrize("most", [None, 0])
def test_a_partition(owns_build: bool, most: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of both sides arrive in any order, in memory and on disk."""
    for module in (received_partition_module, rows_on_disk):
        monkeypatch.setattr(module, "share_of_headroom", lambda: most)
    build, probe = TABLE.slice(0, 1000), TABLE.slice(1000)
    blocks = [(True, block_of(batch)) for batch in build.to_batches(max_chunksize=90)]
    blocks += [(False, block_of(batch)) for batch in probe.to_batches(max_chunksize=90)]
    random.Random(5).shuffle(blocks)
    schemas = PartitionSchemas(TABLE.schema, {0: TABLE.schema}, owns_build)
    with closing(BlockRows(received(blocks), schemas)) as block_rows:
        partition = Partition(schemas, block_rows)
        side = partition.build_sides({0: RECIPE})[0]
        rows = zip(*(side.columns[number].array.to_pylist() for number in range(5)), strict=True)
        assert sorted(rows, key=lambda row: row[4]) == [tuple(row.values()) for row in build.to_pylist()]
        batches = list(partition.probe_batches({0}))
    found = [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    owned = [row[0] for row in found if row[0] is not None] if owns_build else []
    assert owned == list(range(1000 if owns_build else 0))
    probed = [row[1:] if owns_build else row for row in found if not owns_build or row[0] is None]
    assert sorted(probed, key=lambda row: row[4]) == [tuple(row.values()) for row in probe.to_pylist()]


def test_a_partition_without_blocks() -> None:
    schemas = PartitionSchemas(TABLE.schema, {0: TABLE.schema}, True)
    with closing(BlockRows([], schemas)) as block_rows:
        partition = Partition(schemas, block_rows)
        assert partition.build_sides({0: RECIPE})[0].rows == 0
        assert list(partition.probe_batches({0})) == []


class SharedBucket(PartitionRows):
    """A partition that shares a hot bucket: it owns some build rows, and others join some of its probe rows."""

    def probe(self) -> Iterator[pa.RecordBatch]:
        """Yield its own probe rows."""
        return iter(TABLE.slice(0, 10).to_batches())

    def build(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the build rows that it owns."""
        return iter(TABLE.slice(100, 20).to_batches(max_chunksize=9))

    def copies(self) -> Iterator[pa.RecordBatch]:
        """Yield the build rows that other partitions own."""
        return iter(TABLE.slice(200, 30).to_batches(max_chunksize=9))

    def marks(self, read: Collection[int]) -> Iterator[pa.RecordBatch]:
        """Yield the marks of build rows that other partitions match."""
        return iter(TABLE.slice(300, 5).to_batches())

    def close(self) -> None:
        """Do nothing."""


def test_a_partition_that_shares_a_bucket() -> None:
    """Owned build rows come first, so that they have the first ids."""
    partition = Partition(PartitionSchemas(TABLE.schema, {0: TABLE.schema}, True), SharedBucket())
    side = partition.build_sides({0: RECIPE})[0]
    assert side.columns[4].array.to_pylist() == [*range(100, 120), *range(200, 230)]
    found = [
        (owner, d)
        for batch in partition.probe_batches({0})
        for owner, d in zip(batch["owner"].to_pylist(), batch["d"].to_pylist(), strict=True)
    ]
    owned = [(number, None) for number in range(20)]
    assert found == [*owned, *((None, d) for d in range(10)), *((MARKS, d) for d in range(300, 305))]
