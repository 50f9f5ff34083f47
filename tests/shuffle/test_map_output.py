"""Rows are written to a map task's file and read bucket by bucket; damage is detected."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparkext.errors import BlockError
from sparkext.kernels.runtime.jit import freeze
from sparkext.kernels.shuffle.partition import PartitionOrder
from sparkext.shuffle import packed_rows
from sparkext.shuffle.map_output import MapOutput, Segment, rows_of_segments
from tests.shuffle.test_blocks import ROWS, TABLE

BUCKETS = 8
STARTS = np.array([0, 0, 1, 1000, 1000, 1001, 2500, ROWS, ROWS], dtype=np.int64)
"""The first row of each bucket; some buckets are empty."""


def written(path: Path, runs: int = 1, most: int | None = None) -> np.ndarray:
    """Write the table `runs` times, one batch after the other."""
    with closing(MapOutput(BUCKETS, lambda: most, path.parent)) as output, path.open("wb") as stream:
        for _ in range(runs):
            output.add(
                TABLE.combine_chunks().to_batches()[0], PartitionOrder(freeze(np.arange(ROWS, dtype=np.int32)), STARTS)
            )
        return output.write(stream)


def segments(path: Path, lengths: np.ndarray, buckets: list[int]) -> list[Segment]:
    ends = np.cumsum(lengths)
    return [Segment(str(path), int(ends[bucket] - lengths[bucket]), int(lengths[bucket])) for bucket in buckets]


def read(found: list[Segment]) -> pa.Table:
    return pa.Table.from_batches(rows_of_segments(found, TABLE.schema), TABLE.schema)


@pytest.mark.parametrize("block_bytes", [1, 10_000, 4 << 20])
@pytest.mark.parametrize("most", [None, 0])
@pytest.mark.parametrize("runs", [1, 3])
def test_each_bucket_has_its_rows(
    runs: int, most: int | None, block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of one row, of some, and of all; buffered in memory and on disk."""
    monkeypatch.setattr(packed_rows, "BLOCK_BYTES", block_bytes)
    lengths = written(tmp_path / "map", runs, most)
    assert lengths.sum() == (tmp_path / "map").stat().st_size
    for bucket in range(BUCKETS):
        rows = TABLE.slice(STARTS[bucket], STARTS[bucket + 1] - STARTS[bucket])
        assert read(segments(tmp_path / "map", lengths, [bucket])) == pa.concat_tables([rows] * runs)
        assert bool(lengths[bucket]) is bool(rows.num_rows)


def test_buckets_of_several_files(tmp_path: Path) -> None:
    lengths = [written(tmp_path / name, runs) for name, runs in (("a", 1), ("b", 2))]
    found = segments(tmp_path / "a", lengths[0], [2, 5]) + segments(tmp_path / "b", lengths[1], [1])
    assert read(found) == pa.concat_tables([TABLE.slice(1, 999), TABLE.slice(1001, 1499), *[TABLE.slice(0, 1)] * 2])
    assert read([]).num_rows == 0


def test_no_rows_make_an_empty_file(tmp_path: Path) -> None:
    with closing(MapOutput(BUCKETS, lambda: None, tmp_path)) as output:
        stream = io.BytesIO()
        assert output.write(stream).tolist() == [0] * BUCKETS and not stream.getvalue()


@pytest.mark.parametrize("place", [0, 9, 20, -1])
def test_a_damaged_byte_is_noticed(place: int, tmp_path: Path) -> None:
    lengths = written(tmp_path / "map")
    content = bytearray((tmp_path / "map").read_bytes())
    content[place] ^= 0x10
    (tmp_path / "map").write_bytes(content)
    with pytest.raises(BlockError, match=r"blocks at bytes \d+ to \d+ of '.*map' cannot be read: "):
        read(segments(tmp_path / "map", lengths, list(range(BUCKETS))))


@pytest.mark.parametrize("size", [0, 5, 100])
def test_a_file_that_was_cut(size: int, tmp_path: Path) -> None:
    lengths = written(tmp_path / "map")
    (tmp_path / "map").write_bytes((tmp_path / "map").read_bytes()[:size])
    with pytest.raises(BlockError, match="cannot be read"):
        read(segments(tmp_path / "map", lengths, [5]))


@pytest.mark.parametrize("by", [-1, -1000, 1])
def test_a_segment_of_another_size(by: int, tmp_path: Path) -> None:
    lengths = written(tmp_path / "map")
    whole = segments(tmp_path / "map", lengths, [2])[0]
    with pytest.raises(BlockError, match="cannot be read"):
        read([whole._replace(size=whole.size + by)])


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(BlockError, match="No such file"):
        read([Segment(str(tmp_path / "none"), 0, 10)])
