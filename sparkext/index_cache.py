"""Build sides that workers have read from files, and their indexes: kept on local disk for later queries.

    <local folder of the executor>/sparkext/<digest>.build      the rows, contiguous (see `build_file`)
                                            <digest>.build.*    its indexes and locks

The digest covers what was read (columns, types, filter) and the identity of every file, so that a changed, added or
removed file is another entry. Entries that no query has used for the longest time go first; what a process has mapped
stays readable. Spark deletes the folder when the executor ends.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path

from sparkext.index_store import remove_with_indexes
from sparkext.publication import locked

ENTRY_SUFFIX = ".build"
_LOCK = "eviction"


def local_folder() -> Path:
    """Return this package's folder among the local files of the executor that this worker belongs to."""
    spark = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    folder = Path(spark.split(",")[0]) / "sparkext"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def touch(entry: Path) -> None:
    """Remember that an entry is in use. Its modification time is part of its identity, and stays."""
    with contextlib.suppress(OSError):
        os.utime(entry, ns=(time.time_ns(), entry.stat().st_mtime_ns))


def evict(entry: Path, max_bytes: int) -> list[Path]:
    """Remove entries beside `entry`, least recently used first, until all take at most `max_bytes`. Return what went.

    `entry` itself stays. The size of an entry includes its indexes.
    """
    with locked(entry.with_name(_LOCK)):
        found = []
        for other in entry.parent.glob(f"*{ENTRY_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                found.append((other.stat().st_atime_ns, other, _size(other)))
        total = sum(size for _, _, size in found)
        gone = []
        for _, other, size in sorted(found):
            if total <= max_bytes:
                break
            if other != entry:
                remove_with_indexes(other)
                total -= size
                gone.append(other)
        return gone


def _size(entry: Path) -> int:
    size = 0
    for file in entry.parent.glob(f"{entry.name}*"):
        with contextlib.suppress(FileNotFoundError):
            size += file.stat().st_size
    return size
