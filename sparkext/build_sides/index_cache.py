"""Build sides that workers have read from files, with their indexes: kept on local disk for later queries.

    <local folder of the executor>/sparkext/<digest of the rows>.<digest of the recipe>.index

The first digest covers what was read (columns, types, filter) and the identity of every file, so that a changed, added
or removed file is another entry. Entries that no query has used for the longest time go first; what a process has
mapped stays readable. Spark deletes the folder when the executor ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from sparkext.build_sides.index_store import INDEX_SUFFIX
from sparkext.storage.container import TEMPORARY_SUFFIX
from sparkext.storage.local_folder import local_folder
from sparkext.storage.publication import LOCK_SUFFIX, lock_of, locked_if_free, remove_half_written


def touch(entry: Path) -> None:
    """Remember that an entry is in use: by the time of its lock, as its own times are part of its identity."""
    with contextlib.suppress(OSError):
        os.utime(lock_of(entry), follow_symlinks=False)


def _last_used(entry: Path) -> int:
    with contextlib.suppress(OSError):
        return lock_of(entry).lstat().st_mtime_ns
    return entry.stat().st_mtime_ns


def forget(digests: Collection[str]) -> None:
    """Remove all indexes of rows of these names, and their locks: nobody will ask for them again."""
    for path in local_folder().iterdir() if digests else ():
        if INDEX_SUFFIX in path.name and path.name.partition(".")[0] in digests:
            path.unlink(missing_ok=True)


def evict(kept: Collection[Path], max_bytes: int) -> None:
    """Remove entries, least recently used first, until all take at most `max_bytes`; those `kept` stay."""
    folder = local_folder()
    # Every task comes by here: the folder, which may hold thousands of entries, is listed once. Several that do at a
    # time remove the same entries.
    names = {item.name for item in folder.iterdir()}
    found = []
    for entry in (folder / name for name in names if name.endswith(INDEX_SUFFIX)):
        with contextlib.suppress(FileNotFoundError):
            found.append((_last_used(entry), entry, entry.stat().st_size))
    total = sum(size for _, _, size in found)
    for _, entry, size in sorted(found):
        if total <= max_bytes:
            break
        if entry not in kept:
            entry.unlink(missing_ok=True)
            names.discard(entry.name)
            total -= size
    _remove_leftovers(folder, names)


def _remove_leftovers(folder: Path, names: Collection[str]) -> None:
    """Delete what killed writers have left, and the locks of entries that are gone. What is under way stays."""
    half_written = {name.partition(INDEX_SUFFIX)[0] for name in names if name.endswith(TEMPORARY_SUFFIX)}
    for lock in (name for name in names if name.endswith(INDEX_SUFFIX + LOCK_SUFFIX)):
        entry = folder / lock.removesuffix(LOCK_SUFFIX)
        if entry.name not in names or entry.name.removesuffix(INDEX_SUFFIX) in half_written:
            with locked_if_free(folder / lock) as is_free:
                if is_free:
                    remove_half_written(entry)
                    if not entry.exists():
                        (folder / lock).unlink(missing_ok=True)
