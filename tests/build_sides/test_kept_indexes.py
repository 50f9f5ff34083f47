"""Build sides that workers read from files: indexed in memory or on disk, cached with the columns that joins fetch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkext.build_sides import rows_on_disk
from sparkext.build_sides.cached_rows import evict_other_entries
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import INDEX_SUFFIX, BuildSide
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.kernels.indexes.bounds import Bound
from sparkext.kernels.indexes.matches import Matches
from sparkext.kernels.indexes.nearest import NearestKeys
from sparkext.kernels.indexes.range_index import RangeKeys
from sparkext.kernels.keys.hashing import FULL_MASK
from sparkext.kernels.keys.normalised import normalise_keys
from sparkext.memory.probes import Headroom
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.pipeline.scan import DataFile, ScanColumn, ScanSpec, plan_splits
from sparkext.storage.publication import LOCK_SUFFIX

KEY = pa.int64()
HASHED = IndexRecipe((0,), (KEY,), (False,), "auto", FULL_MASK, may_cluster=True, gathered=(1,))
AS_OF = IndexRecipe((0,), (KEY,), (False,), "auto", FULL_MASK, may_cluster=True, bounds=((2, KEY),), gathered=(1,))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path / "sparkext"


@pytest.fixture(params=[None, 10**12, 1], ids=["unknown", "ample", "scarce"])
def headroom(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    reading = None if request.param is None else Headroom(request.param, "available")
    monkeypatch.setattr(rows_on_disk, "process_probe", lambda: SimpleNamespace(headroom=lambda: reading))
    size: int | None = request.param
    return size


def source_of(path: Path, rows: int, threads: int) -> ScannedFiles:
    """Open keys 0 to 9 with many rows each, a payload that names the row, and a descending compared value."""
    numbers = np.arange(rows)
    table = pa.table({"k": numbers % 10, "name": [f"row {number}" for number in numbers], "at": rows - numbers})
    pq.write_table(table, path, row_group_size=1 + rows // 7)
    spec = ScanSpec(tuple(ScanColumn(name) for name in table.column_names), 3, None, case_sensitive=False)
    scan = ParquetScan(spec, pa.schema([(f"c{n}", kind) for n, kind in enumerate(table.schema.types)]), 1 << 20)
    return ScannedFiles(scan, (DataFile(str(path), path.stat().st_size).split(0, 2**62),), 1 << 30, threads)


def names(side: BuildSide, rows: Any) -> list[str]:
    found: list[str] = side.columns[1].take(np.asarray(rows, dtype=np.int32), missing=False).to_pylist()
    return found


@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows_a_key(folder: Path, tmp_path: Path, headroom: int | None, threads: int) -> None:
    source = source_of(tmp_path / "file.parquet", 500, threads)
    side = source.open(HASHED)
    assert side.info.clustered and not side.reused
    assert sorted(side.columns) == [1], "the key is in the index, and nothing else is asked for"
    found = side.lookup(normalise_keys([pa.array([3, 77])], [False], side.info.key_ranges))
    assert found.counts is not None and found.rows is None and found.counts.tolist() == [50, 0]
    start = int(found.first[0])
    assert names(side, range(start, start + 50)) == [f"row {number}" for number in range(3, 500, 10)]
    assert source.open(HASHED).reused
    (entry,) = folder.glob(f"*{INDEX_SUFFIX}")
    assert {file.name for file in folder.iterdir()} == {entry.name, entry.name + LOCK_SUFFIX}
    assert entry.stat().st_mode & 0o777 == 0o600


def test_groups_in_an_order_of_their_own(folder: Path, tmp_path: Path, headroom: int | None) -> None:
    side = source_of(tmp_path / "file.parquet", 500, 2).open(AS_OF)
    assert side.info.clustered and side.info.kind == "range"
    equal = normalise_keys([pa.array([3, 4, 5])], [False], side.info.key_ranges)
    near = side.lookup_nearest(NearestKeys(equal, pa.array([400, 0, 6]), "backward", True, None))
    # Row r of 500 has the value 500 - r. The last row of key 3 with a value of at most 400 is row 103, with 397.
    assert near.first.tolist()[1] == -1
    assert names(side, near.first[[0, 2]]) == ["row 103", "row 495"]
    ranges = side.lookup_ranges(RangeKeys(equal, [[Bound("<=", pa.array([400, 0, 6]))]]))
    assert isinstance(ranges, Matches) and ranges.counts is not None
    assert ranges.counts.tolist() == [40, 0, 1]
    start = int(ranges.first[0])
    assert names(side, range(start, start + 40)) == [f"row {number}" for number in range(493, 100, -10)]


def test_room_is_made_for_the_last_index(folder: Path, tmp_path: Path) -> None:
    source = source_of(tmp_path / "file.parquet", 500, 1)
    for recipe in (HASHED, AS_OF):
        source.open(recipe)
        evict_other_entries([(source, recipe)], 1)
        assert list(folder.glob(f"*{INDEX_SUFFIX}")) == [source.entry(recipe)]


@pytest.mark.parametrize("cores", [1, 2, 3, 100])
@pytest.mark.parametrize("sizes", [[], [1], [10, 10, 10], [1000, 1, 1, 1], [7] * 50, [5000]])
def test_splits_cover_every_byte_once(sizes: list[int], cores: int) -> None:
    files = [DataFile(f"file {number}", size, ("value",)) for number, size in enumerate(sizes)]
    tasks = plan_splits(files, cores, most=100, open_cost=10)
    covered = sorted((split.path, split.start, split.start + split.length) for task in tasks for split in task)
    expected = {file.path: file.length for file in files}
    reached: dict[str, int] = {}
    for path, start, stop in covered:
        assert start == reached.get(path, 0) and stop - start <= 100
        reached[path] = stop
    assert reached == expected
    assert all(task for task in tasks)
    assert all(split.values == ("value",) for task in tasks for split in task)
    total = sum(size + 10 for size in sizes)
    assert len(tasks) <= 2 * max(cores, -(-total // 10))
