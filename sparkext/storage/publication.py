"""Files that the processes of a node share: written by the first process that needs one, read by all.

The first process to take the file lock writes the file and publishes it by an atomic rename; the others wait for the
lock and find the file. A killed writer leaves a temporary file that nobody reads, and a lock that the system releases:
the next process takes over and deletes the temporary file. A file that turns out to be damaged is written again.

A suspended process (SIGSTOP, a frozen control group) does not release its lock. Therefore the holder of a lock touches
it periodically, and waiting processes give up if it has not been touched for a minute: `CachedRows` and `MappedFile`
then create a private copy.
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
from sparkext.storage.container import TEMPORARY_SUFFIX, identify_file

LOCK_SUFFIX = ".lock"
_TOUCH_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.01
T = TypeVar("T")


def publish_once(path: Path, write: Callable[[], object]) -> bool:
    """Make sure that a complete file exists at `path`: unless it exists, `write` writes it, as an `atomic_file`.

    Return whether this process has written it. Safe for any number of concurrent processes, which may be killed at any
    point.
    """
    if path.exists():
        return False
    with locked(lock_of(path)):
        if path.exists():
            return False
        remove_half_written(path)
        write()
    return True


def read_published(path: Path, write: Callable[[], object], read: Callable[[Path], T]) -> T:
    """Return the result of `read` for the file at `path`; `write` writes it if it is missing or damaged.

    Raises
    ------
    BuildFileError
        A damaged file was written again, and is damaged again.
    TimeoutError
        See `locked`.
    """
    publish_once(path, write)
    identity = identify_file(path)
    try:
        return read(path)
    except BuildFileError:
        with locked(lock_of(path)), suppress(FileNotFoundError):
            if identify_file(path) == identity:  # otherwise another process has replaced it
                path.unlink()
        publish_once(path, write)
        return read(path)


def lock_of(path: Path) -> Path:
    """Return the path of the lock of a published file."""
    return path.with_name(path.name + LOCK_SUFFIX)


def remove_half_written(path: Path) -> None:
    """Delete temporary files of killed writers of `path`. The caller must hold its lock."""
    for temporary in path.parent.glob(f"{escape(path.name)}.*{TEMPORARY_SUFFIX}"):
        # With a dot in this part of the name, it is a temporary file of the index of `path`.
        if "." not in temporary.name[len(path.name) + 1 : -len(TEMPORARY_SUFFIX)]:
            temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`; the system releases it if this process dies.

    Raises
    ------
    TimeoutError
        The process that holds the lock is suspended.
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
def hold_lock_if_free(path: Path) -> Iterator[bool]:
    """Hold the same lock if it is free; yield whether it was."""
    try:
        descriptor = _lock(path, _try_lock)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


def _lock(path: Path, lock: Callable[[int], None]) -> int:
    """Lock the file at `path`; repeat if it was removed or replaced while this process waited."""
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


def _try_lock(descriptor: int) -> None:
    """Lock a file. Raises BlockingIOError if another process holds the lock."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _wait(descriptor: int) -> None:
    """Lock a file as soon as it is free; give up if its holder stops touching it."""
    touched, since = None, 0.0
    while True:
        with suppress(BlockingIOError):
            return _try_lock(descriptor)
        touch_time, now = os.fstat(descriptor).st_mtime_ns, time.monotonic()
        if touch_time != touched:
            touched, since = touch_time, now
        elif now - since > _PATIENCE_SECONDS:
            raise TimeoutError(ETIMEDOUT, f"the process that holds a lock has made no progress for {now - since:.0f} s")
        time.sleep(_PAUSE_SECONDS)


def _touch(descriptor: int, is_over: Event) -> None:
    """Touch a lock periodically, to show waiting processes that its holder is not suspended."""
    while not is_over.wait(_TOUCH_SECONDS):
        os.utime(descriptor)
