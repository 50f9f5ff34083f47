"""What tasks do first."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from sparkext.worker.task_start import settle


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_tasks_have_loaded_is_looked_at_once() -> None:
    settle()
    loaded = [[] for _ in range(300_000)]
    before = gc.get_freeze_count()
    gc.collect()  # as Spark does after a task
    assert gc.get_freeze_count() <= before

    settle()
    assert gc.get_freeze_count() - before > len(loaded)
    gc.collect()  # quick now
    frozen = gc.get_freeze_count()
    few = [[] for _ in range(100)]
    settle()
    assert gc.get_freeze_count() <= frozen and few


def test_what_was_frozen_is_freed_as_ever() -> None:
    loaded = [[] for _ in range(300_000)]
    gc.collect()
    settle()
    frozen = gc.get_freeze_count()
    assert frozen > len(loaded)
    del loaded
    assert gc.get_freeze_count() < frozen - 299_000
