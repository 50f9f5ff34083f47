"""`spark.sparkext.memory.maxBytes` limits all memory of a task: its index as well as its budgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkext.build_sides.file import write_build_file
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide, open_build_side
from sparkext.build_sides.sources import BuildSource
from sparkext.config import read_settings
from sparkext.engine.join_pipeline import EmittedBatches
from sparkext.engine.pipeline_plan import PipelinePlan
from sparkext.engine.pipeline_task import PipelineTask
from sparkext.engine.task_sources import ProbeBatches
from sparkext.errors import BuildSideTooLargeError
from sparkext.memory.probes import MemoryProbe, process_probe
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.reports.metrics import TaskMetrics
from sparkext.storage.container import atomic_file

ROWS = 1_000_000
OWN = 100 << 20
JOIN = JoinSpec("inner", (KeyPair(ColumnRef(PROBE, 0), 0, "int64", False),), "hash", "a join")
SPEC = PipelineSpec(1, (JOIN,), (ColumnRef(PROBE, 0), ColumnRef(1, 1)))
SCHEMA = pa.schema([("key", pa.int64()), ("number", pa.int64())])
KEYS = np.arange(ROWS) * 1_000_003


class Kept:
    """A reporter that stores its metrics."""

    def report(self, metrics: TaskMetrics) -> None:
        self.metrics = metrics


class OneFile(BuildSource):
    """A published build file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def digest(self) -> str:
        raise NotImplementedError

    def open(self, recipe: IndexRecipe) -> BuildSide:
        return open_build_side(self.path, recipe)

    def columns(self) -> tuple[int, list[pa.Array]]:
        raise NotImplementedError


@pytest.fixture
def file(tmp_path: Path) -> OneFile:
    with atomic_file(tmp_path / "side") as stream:
        write_build_file(pa.table({"key": KEYS, "number": np.arange(ROWS)}), stream)
    return OneFile(tmp_path / "side")


def joined(file: OneFile, left: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a task that may use `left` bytes in addition to its process's memory, and return its metrics."""
    monkeypatch.setattr(MemoryProbe, "own_bytes", lambda self: OWN)
    settings = replace(read_settings(lambda key: None, {}), memory_max_bytes=OWN + left if left else 0)
    kept = Kept()
    plan = PipelinePlan(SPEC, (file,), SCHEMA)
    task = PipelineTask(ProbeBatches(), plan, EmittedBatches(), kept, settings=settings, tasks_sharing=1)
    (batch,) = task([pa.record_batch({"key": KEYS[[7, 999_999]]})])
    assert batch.column("number").to_pylist() == [7, 999_999]
    return kept.metrics


@pytest.mark.parametrize("left, kind", [(0, "hash"), (200 << 20, "hash"), (60 << 20, "ordered")])
def test_an_index_is_of_a_kind_that_fits(left: int, kind: str, file: OneFile, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = joined(file, left, monkeypatch)
    assert metrics.indexes[0]["kind"] == kind
    limits = {operator["headroom_limit"] for operator in metrics.operators}
    assert ("configured" in limits) == bool(left)
    found = process_probe().headroom()
    assert found is None or found.limit != "configured", "the next task may have another limit"


def test_an_index_that_does_not_fit_is_an_error(file: OneFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildSideTooLargeError, match=r"building the index \(ordered\) takes up to 48,000,000 bytes"):
        joined(file, 40 << 20, monkeypatch)
