"""The frame in which every task runs."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import sparkext
from sparkext.config import read_settings
from sparkext.engine import worker_task
from sparkext.engine.worker_task import MemoryShare, WorkerTask, _freeze_modules
from sparkext.errors import EnvironmentProblemError
from sparkext.memory import address_space, freed
from sparkext.memory.probes import Tasks, process_probe

ROWS = pa.record_batch({"a": [1, 2]})


@dataclass(frozen=True)
class Limited(WorkerTask):
    """Emits each batch unchanged, and fails on an empty one."""

    max_bytes: int

    @property
    def share(self) -> MemoryShare:
        return MemoryShare(read_settings({"spark.sparkext.memory.maxBytes": str(self.max_bytes)}.get, {}), 3)

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows == 0:
                raise ValueError("an empty batch")
            assert process_probe().headroom(tasks).bytes <= self.max_bytes
            yield batch


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets one entry each time memory is released."""
    found: list[str] = []
    monkeypatch.setattr(freed, "release_unless_ample", lambda: found.append("released"))
    return found


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_a_task_plans_within_its_limit_and_returns_memory(released: list[str]) -> None:
    assert list(Limited(1 << 30)([ROWS, ROWS])) == [ROWS, ROWS]
    assert released == ["released"]


def test_memory_is_returned_also_by_a_task_that_fails_or_is_cut_short(released: list[str]) -> None:
    with pytest.raises(ValueError, match="an empty batch"):
        list(Limited(1 << 30)([ROWS, ROWS.slice(2)]))
    running = Limited(1 << 30)([ROWS, ROWS])
    assert next(running) == ROWS
    running.close()  # type: ignore[attr-defined]
    assert released == ["released"] * 2


def test_the_order_of_another_version_is_refused(released: list[str]) -> None:
    with pytest.raises(EnvironmentProblemError, match=r"sparkext 0\.0\.1, but this worker"):
        list(Limited(1 << 30, made_by="0.0.1")([ROWS]))


def test_a_small_address_space_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_space, "read_limit", lambda: 1 << 20)
    with pytest.raises(EnvironmentProblemError, match="a pipelined join needs at least"):
        list(Limited(1 << 30)([ROWS]))


def test_arrow_without_the_codec_of_spark_says_so() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield ROWS
        raise OSError("LZ4 decompression failed")

    with pytest.raises(EnvironmentProblemError, match=r"set spark\.sql.execution\.arrow\.compression\.codec"):
        list(Limited(1 << 30)(failing()))


def test_every_task_runs_in_the_frame() -> None:
    """No task class that Spark calls has a frame of its own."""
    found = set()
    root = Path(sparkext.__file__).parent
    for path in root.rglob("*_task.py"):
        module = importlib.import_module(".".join(("sparkext", *path.relative_to(root).with_suffix("").parts)))
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__ and kind.__name__.endswith("Task"):
                found.add(kind)
    assert len(found) > 10
    for kind in found:
        assert issubclass(kind, WorkerTask) and kind.__call__ is WorkerTask.__call__, kind


def test_modules_that_tasks_have_loaded_are_collected_once() -> None:
    _freeze_modules()
    loaded = [[] for _ in range(300_000)]
    before = gc.get_freeze_count()
    gc.collect()  # like Spark after a task
    assert gc.get_freeze_count() <= before

    _freeze_modules()
    assert gc.get_freeze_count() - before > len(loaded)
    gc.collect()  # quick now
    frozen = gc.get_freeze_count()
    few = [[] for _ in range(100)]
    _freeze_modules()
    assert gc.get_freeze_count() <= frozen and few


def test_frozen_objects_are_freed_as_ever() -> None:
    loaded = [[] for _ in range(300_000)]
    gc.collect()
    _freeze_modules()
    frozen = gc.get_freeze_count()
    assert frozen > len(loaded)
    del loaded
    assert gc.get_freeze_count() < frozen - 299_000


def test_a_task_counts_among_those_that_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = worker_task.task_entered
    monkeypatch.setattr(worker_task, "task_entered", lambda otherwise: asked.append(otherwise) or real(otherwise))
    list(Limited(1 << 30)([ROWS]))
    assert asked == [3]
