"""Functions that run in other processes for the tests of the index store. Spawned processes import them by name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import IO

import pyarrow as pa

from sparkext.build_sides import index_store
from sparkext.build_sides.index_builder import BuiltIndex
from sparkext.build_sides.index_file import AnyIndex, IndexInfo, write_index_file
from sparkext.kernels.indexes.ordered_index import build_ordered_index
from sparkext.kernels.keys.normalised import normalise_keys
from sparkext.storage.publication import publish_once

KEYS = [30, 10, 20, 10]


def small_index() -> BuiltIndex:
    """Return an index over `KEYS`. Its reason names this process."""
    index = build_ordered_index(normalise_keys([pa.array(KEYS)], [False]))
    return BuiltIndex(index, IndexInfo(index.kind, f"process {os.getpid()}", 0, len(KEYS), 0.0))


def publish_index(index_path: Path, build: Callable[[], BuiltIndex]) -> bool:
    """Ensure that a complete `index_path` exists; return whether this process built it (see `publish_once`)."""
    return publish_once(index_path, partial(index_store._write, index_path, build))


def build_slowly_and_log(path: Path, barrier: Barrier, log: Path) -> None:
    """Publish at the same time as the other processes; log each build, and each return."""

    def build() -> BuiltIndex:
        _note(log, "built")
        time.sleep(0.3)
        return small_index()

    barrier.wait()
    built = publish_index(path, build)
    _note(log, f"returned {built} {path.exists()}")


def hang_while_building(path: Path, reached: Event) -> None:
    """Hold the lock forever, before anything is written."""

    def build() -> BuiltIndex:
        reached.set()
        time.sleep(600)
        raise AssertionError("unreachable")

    publish_index(path, build)


def hang_while_writing(path: Path, reached: Event) -> None:
    """Hold the lock forever, with half of a file written."""

    def write_half(index: AnyIndex, info: IndexInfo, stream: IO[bytes], columns: None) -> None:
        write_index_file(index, info, stream)
        stream.seek(stream.tell() // 2)
        stream.truncate()
        stream.flush()
        reached.set()
        time.sleep(600)

    index_store.write_index_file = write_half
    publish_index(path, small_index)


def hang_before_renaming(path: Path, reached: Event) -> None:
    """Hold the lock forever, with the complete file written under its temporary name."""

    def replace(self: Path, target: Path) -> None:
        reached.set()
        time.sleep(600)

    Path.replace = replace  # type: ignore[assignment, method-assign]
    publish_index(path, small_index)


def _note(log: Path, line: str) -> None:
    with log.open("a") as stream:
        stream.write(f"{line}\n")
