"""Build sides that workers have read from files, with their indexes: cached on local disk for later queries.

    <local folder of the executor>/sparkext/<digest of the rows>.<digest of the recipe>.index

The first digest covers the rows read (columns, types, filter) and the identity of every file, so that a changed, added
or removed file results in another entry. The least recently used entries are evicted first; mapped files stay readable.
Spark deletes the folder when the executor ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from sparkext.build_sides.index_store import INDEX_SUFFIX
from sparkext.storage.container import TEMPORARY_SUFFIX
from sparkext.storage.local_folder import local_folder
from sparkext.storage.publication import LOCK_SUFFIX, hold_lock_if_free, lock_of, remove_half_written


def touch(entry: Path) -> None:
    """Record the use of an entry as the time of its lock file: the entry's own times are part of its identity."""
    with contextlib.suppress(OSError):
        os.utime(lock_of(entry), follow_symlinks=False)


def _read_last_use(entry: Path) -> int:
    with contextlib.suppress(OSError):
        return lock_of(entry).lstat().st_mtime_ns
    return entry.stat().st_mtime_ns


def forget(digests: Collection[str]) -> None:
    """Remove all indexes of the rows with these digests, and their locks: they will not be requested again."""
    for path in local_folder().iterdir() if digests else ():
        if INDEX_SUFFIX in path.name and path.name.partition(".")[0] in digests:
            path.unlink(missing_ok=True)


def evict(entries_in_use: Collection[Path], max_bytes: int) -> None:
    """Remove entries, least recently used first, until the rest take at most `max_bytes`; never `entries_in_use`."""
    folder = local_folder()
    # List the folder only once: every task calls this function, and the folder may have thousands of entries.
    # Concurrent tasks evict the same entries.
    names = {item.name for item in folder.iterdir()}
    candidates = []
    for entry in (folder / name for name in names if name.endswith(INDEX_SUFFIX)):
        with contextlib.suppress(FileNotFoundError):
            candidates.append((_read_last_use(entry), entry, entry.stat().st_size))
    total = sum(size for _, _, size in candidates)
    for _, entry, size in sorted(candidates):
        if total <= max_bytes:
            break
        if entry not in entries_in_use:
            entry.unlink(missing_ok=True)
            names.discard(entry.name)
            total -= size
    _remove_leftovers(folder, names)


def _remove_leftovers(folder: Path, names: Collection[str]) -> None:
    """Delete temporary files of killed writers, and locks of entries that no longer exist, unless they are in use."""
    half_written = {name.partition(INDEX_SUFFIX)[0] for name in names if name.endswith(TEMPORARY_SUFFIX)}
    for lock in (name for name in names if name.endswith(INDEX_SUFFIX + LOCK_SUFFIX)):
        entry = folder / lock.removesuffix(LOCK_SUFFIX)
        if entry.name not in names or entry.name.removesuffix(INDEX_SUFFIX) in half_written:
            with hold_lock_if_free(folder / lock) as is_free:
                if is_free:
                    remove_half_written(entry)
                    if not entry.exists():
                        (folder / lock).unlink(missing_ok=True)
