"""Build sides that workers have read from files, with their indexes: kept on local disk for later queries.

    <local folder of the executor>/sparkext/<digest of the rows>.<digest of the recipe>.index

The first digest covers what was read (columns, types, filter) and the identity of every file, so that a changed, added
or removed file is another entry. Entries that no query has used for the longest time go first; what a process has
mapped stays readable. Spark deletes the folder when the executor ends.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from sparkext.index_store import INDEX_SUFFIX
from sparkext.publication import locked

_LOCK = "eviction"


def local_folder() -> Path:
    """Return this package's folder among the local files of the executor that this worker belongs to."""
    spark = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    folder = Path(spark.split(",")[0]) / "sparkext"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def touch(entry: Path) -> None:
    """Remember that an entry is in use. Its modification time is part of its identity, and stays."""
    with contextlib.suppress(OSError), entry.open("rb") as opened:
        os.utime(opened.fileno(), ns=(time.time_ns(), os.fstat(opened.fileno()).st_mtime_ns))


def evict(kept: Collection[Path], max_bytes: int) -> None:
    """Remove entries, least recently used first, until all take at most `max_bytes`; those `kept` stay."""
    folder = local_folder()
    with locked(folder / _LOCK):
        found = []
        for entry in folder.glob(f"*{INDEX_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                found.append((status.st_atime_ns, entry, status.st_size))
        total = sum(size for _, _, size in found)
        for _, entry, size in sorted(found):
            if total <= max_bytes:
                break
            if entry not in kept:
                entry.unlink(missing_ok=True)
                total -= size
