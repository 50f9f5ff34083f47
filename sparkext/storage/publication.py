"""Files that the processes of a node share: written by the first that needs one, read by all.

The first process to take the file lock writes and publishes by an atomic rename; the others wait on the lock and find
the file. A writer that is killed leaves a temporary file that nobody reads and a lock that the system releases: the
next process takes over and clears it away. A file that turns out to be damaged is written again.

A process that stands still (SIGSTOP, a frozen control group) releases nothing. So who holds a lock touches it now and
then, and who waits gives up when nobody has for a minute: `KeptRows` and `MappedFile` hold a copy of their own then.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import ETIMEDOUT
from glob import escape
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

from sparkext.errors import BuildFileError
from sparkext.storage.container import TEMPORARY_SUFFIX, file_identity

LOCK_SUFFIX = ".lock"
_TOUCH_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.01
T = TypeVar("T")


def publish_once(path: Path, write: Callable[[], object]) -> bool:
    """Make sure that `path` exists, whole: `write` writes it, as an `atomic_file`, if nobody has.

    Return whether this process did. Safe against any number of processes that try at once, and against their death at
    any point.
    """
    if path.exists():
        return False
    with locked(lock_of(path)):
        if path.exists():
            return False
        remove_half_written(path)
        write()
    return True


def published(path: Path, write: Callable[[], object], read: Callable[[Path], T]) -> T:
    """Return what `read` makes of the file at `path`, which `write` writes if nobody has, or if it is damaged.

    Raises
    ------
    BuildFileError
        What was written to take the place of a damaged file is damaged, too.
    """
    publish_once(path, write)
    before = file_identity(path)
    try:
        return read(path)
    except BuildFileError:
        with locked(lock_of(path)), suppress(FileNotFoundError):
            if file_identity(path) == before:  # or another process has done so
                path.unlink()
        publish_once(path, write)
        return read(path)


def lock_of(path: Path) -> Path:
    """Return where the lock of a published file lies."""
    return path.with_name(path.name + LOCK_SUFFIX)


def remove_half_written(path: Path) -> None:
    """Delete what killed writers have left of `path`. To be called by who holds its lock."""
    for temporary in path.parent.glob(f"{escape(path.name)}.*{TEMPORARY_SUFFIX}"):
        if "." not in temporary.name[len(path.name) + 1 : -len(TEMPORARY_SUFFIX)]:  # else that of its index
            temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`; the system releases it should this process die.

    Raises
    ------
    TimeoutError
        The process that holds it stands still.
    """
    descriptor = _lock(path, _wait)
    is_over = Event()
    touching = Thread(target=_touch, args=(descriptor, is_over), daemon=True)
    touching.start()
    try:
        yield
    finally:
        is_over.set()
        touching.join()
        os.close(descriptor)


@contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Hold the same lock if nobody else does, and return whether that worked."""
    try:
        descriptor = _lock(path, _take)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


def _lock(path: Path, lock: Callable[[int], None]) -> int:
    """Lock the file that lies at `path`, and not one that was removed from there while this process waited."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            lock(descriptor)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _take(descriptor: int) -> None:
    """Lock a file. Raises BlockingIOError if another process holds the lock."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _wait(descriptor: int) -> None:
    """Lock a file as soon as nobody else does, unless nobody touches it meanwhile."""
    touched, since = None, 0.0
    while True:
        with suppress(BlockingIOError):
            return _take(descriptor)
        found, now = os.fstat(descriptor).st_mtime_ns, time.monotonic()
        if found != touched:
            touched, since = found, now
        elif now - since > _PATIENCE_SECONDS:
            raise TimeoutError(ETIMEDOUT, f"the process that holds a lock stands still for {now - since:.0f} s")
        time.sleep(_PAUSE_SECONDS)


def _touch(descriptor: int, is_over: Event) -> None:
    """Show who waits for a lock that its holder does not stand still."""
    while not is_over.wait(_TOUCH_SECONDS):
        os.utime(descriptor)
