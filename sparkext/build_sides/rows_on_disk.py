"""Rows of a build side that exceed a fraction of the free memory: they are stored in files while they are indexed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from sparkext.build_sides.file import read_build_file, write_build_file
from sparkext.memory.probes import process_probe
from sparkext.rows.collected import CollectedRows
from sparkext.storage.local_folder import local_folder
from sparkext.storage.spill import map_contents, open_unnamed_file

_MOST_OF_HEADROOM = 0.25
"""Fraction of the free memory that rows may use while they are indexed; the index and a column need as much again."""


def share_of_headroom() -> int | None:
    """Return the maximum number of bytes of rows in memory while they are indexed, None without limit."""
    headroom = process_probe().headroom()
    return None if headroom is None else int(headroom.bytes * _MOST_OF_HEADROOM)


def create_row_collector() -> CollectedRows:
    """Return a collector of a task's rows, which moves them to disk if they exceed a fraction of the free memory."""
    return CollectedRows(lambda rows, size: None, lambda: share_of_headroom(), local_folder())


def move_to_disk(table: pa.Table, folder: Path) -> list[pa.Array]:
    """Return the columns, contiguous and mapped from an unnamed file, so that the system can reclaim their pages."""
    with open_unnamed_file(folder) as stream:
        write_build_file(table, stream)
        _, columns = read_build_file(map_contents(stream), "a temporary file")
        return columns
