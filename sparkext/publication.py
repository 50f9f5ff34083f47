"""Files that the processes of a node share: written by the first that needs one, read by all.

The first process to take the file lock writes and publishes by an atomic rename; the others wait on the lock and find
the file. A writer that is killed leaves a temporary file that nobody reads and a lock that the system releases: the
next process takes over and clears it away.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from sparkext.container import TEMPORARY_SUFFIX

LOCK_SUFFIX = ".lock"


def publish_once(path: Path, write: Callable[[], object]) -> bool:
    """Make sure that `path` exists, whole: `write` writes it, as an `atomic_file`, if nobody has.

    Return whether this process did. Safe against any number of processes that try at once, and against their death at
    any point.
    """
    if path.exists():
        return False
    with locked(path.with_name(path.name + LOCK_SUFFIX)):
        if path.exists():
            return False
        for stale in path.parent.glob(f"{escape(path.name)}.*{TEMPORARY_SUFFIX}"):
            stale.unlink(missing_ok=True)
        write()
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`; the system releases it should this process die."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
