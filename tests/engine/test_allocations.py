"""Each single allocation fails in turn: the result is an error or the right answer, and nothing leaks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkext.build_sides import index_store, rows_on_disk
from sparkext.build_sides.file import write_build_file
from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import INDEX_SUFFIX, open_build_side
from sparkext.config import read_settings
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Resources
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.errors import SparkExtError
from sparkext.memory.probes import Headroom
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.pipeline.scan import DataFile, ScanColumn, ScanSpec
from sparkext.plans.pipeline.spec import ColumnRef, JoinSpec, KeyPair, PipelineSpec, RangePair
from sparkext.storage.container import TEMPORARY_SUFFIX, atomic_file
from sparkext.storage.publication import LOCK_SUFFIX, hold_lock_if_free

ALLOCATE = [(pa, "allocate_buffer"), *((np, name) for name in ("empty", "zeros", "full", "empty_like", "arange"))]
PROBE = pa.record_batch({"k": [7, 1 << 40, None, 8, 7], "s": ["x", None, "y", "z", "x"], "n": [1, 2, 3, 4, 5]})
BUILD = pa.table({"k": [1 << 40, 7, 9, 7, 7, None] * 4, "s": ["x", "y", "x", None, "z", "z"] * 4, "n": range(24)})
SCHEMA = pa.schema([("p", pa.int64()), ("b", pa.int64()), ("t", pa.string())])
SETTINGS = read_settings(lambda _: None, {})


class Failing:
    """Makes allocation number `number` fail, and counts allocations."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.count = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module, name in ALLOCATE:
                patch.setattr(module, name, self._counting(getattr(module, name)))
            yield

    def _counting(self, allocate: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self._number:
                raise MemoryError(f"allocation {self.count}")
            return allocate(*args, **options)

        return counted


def spec_of(kind: str) -> PipelineSpec:
    key = {"text": KeyPair(ColumnRef(0, 1), 1, "string", False)}.get(kind, KeyPair(ColumnRef(0, 0), 0, "int64", False))
    ranges = (RangePair(ColumnRef(0, 2), "<", 2, "int64"),) if kind == "range" else ()
    join = JoinSpec("left", (key,), "sort_merge" if kind == "sorted" else "auto", "a test", ranges=ranges)
    return PipelineSpec(3, (join,), (ColumnRef(0, 2), ColumnRef(1, 2), ColumnRef(1, 1)))


def files_of(path: Path) -> ScannedFiles:
    """Return the same rows as a file source. It is not one of the derived sources."""
    pq.write_table(BUILD, path, row_group_size=5)
    spec = ScanSpec(tuple(map(ScanColumn, BUILD.column_names)), 3, None, case_sensitive=False)
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate(BUILD.schema.types)])
    splits = (DataFile(str(path), path.stat().st_size).split(0, 2**62),)
    return ScannedFiles(ParquetScan(spec, schema, 5), splits, 1 << 30, 2)


def run(spec: PipelineSpec, path: Path, files: ScannedFiles | None) -> list[dict[str, Any]]:
    recipe = derive_index_recipe(spec, 0, SETTINGS.debug_hash_mask)
    build = open_build_side(path, recipe) if files is None else files.open(recipe)
    pipeline = create_pipeline(spec, [build], SCHEMA, SETTINGS, Resources(lambda: None))
    source = RowBatches([PROBE], spec, SETTINGS.morsel_max_rows)
    return [row for batch in pipeline.run(source) for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", ["word", "text", "sorted", "range", "files", "spilled files"])
def test_memory_runs_out_at_every_allocation(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_store, "_opened", index_store._OpenBuildSides())
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    if kind == "spilled files":
        monkeypatch.setattr(
            rows_on_disk, "process_probe", lambda: SimpleNamespace(headroom=lambda: Headroom(1, "a test"))
        )
    folder = tmp_path / "sparkext"
    folder.mkdir()
    spec, path = spec_of(kind), folder / "side"
    files = files_of(tmp_path / "file.parquet") if "files" in kind else None
    threads = threading.active_count()

    def start_anew() -> None:
        for file in folder.iterdir():
            file.unlink()
        with atomic_file(path) as stream:
            write_build_file(BUILD, stream)

    start_anew()
    expected = run(spec, path, files)
    assert len(expected) > 5
    for number in range(1, 1000):
        start_anew()
        failing = Failing(number)
        try:
            with failing.installed():
                rows = run(spec, path, files)
        except (MemoryError, SparkExtError):
            rows = None
        assert rows in (None, expected)
        assert threading.active_count() == threads
        assert not list(folder.glob(f"*{TEMPORARY_SUFFIX}"))
        for lock in folder.glob(f"*{LOCK_SUFFIX}"):
            with hold_lock_if_free(lock) as is_free:
                assert is_free
        assert run(spec, path, files) == expected, "nothing half done is found by who comes next"
        assert len(list(folder.glob(f"*{INDEX_SUFFIX}"))) == 1
        if failing.count < number:
            assert number > 20, "allocations are seen"
            return
    pytest.fail("no run came to its end")
