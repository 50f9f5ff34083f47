"""Rows of a build side that are more than a share of what memory there is: they lie in files while they are indexed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from sparkext.build_sides.file import read_build_file, write_build_file
from sparkext.memory.probes import process_probe
from sparkext.rows.collected import CollectedRows, mapped, unnamed_file
from sparkext.storage.local_folder import local_folder

_MOST_OF_HEADROOM = 0.25
"""Of what memory there is, rows may take so much while they are indexed, and the index and a column as much again."""


def share_of_headroom() -> int | None:
    """Return how many bytes rows may take in memory while they are indexed, None without limit."""
    headroom = process_probe().headroom()
    return None if headroom is None else int(headroom.bytes * _MOST_OF_HEADROOM)


def collected_rows() -> CollectedRows:
    """Return what gathers rows of a task: on disk, where they are more than a share of what memory there is."""
    return CollectedRows(lambda rows, size: None, share_of_headroom, local_folder())


def on_disk(table: pa.Table, folder: Path) -> list[pa.Array]:
    """Return the columns, contiguous, in pages of a file without a name, which the system may reclaim."""
    with unnamed_file(folder) as stream:
        write_build_file(table, stream)
        _, columns = read_build_file(mapped(stream), "a temporary file")
        return columns
