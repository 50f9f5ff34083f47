"""The tasks of this node that draw on the same memory: a small file that their workers share, one slot a task.

Every worker reads the same headroom, and tasks that decide at the same moment would all spend it. So each divides it
among those that run: counted here, as executors and applications know nothing of each other. A slot holds

    process id │ when that process started │ its memory control group │ the one above │ … │ 0

as int64 numbers. Where a group's limit binds, those count that are in it or below it: executors with groups of
their own share what the one above them leaves. The file is mapped; behind the slots is how often they changed, and
until that changes a count holds. Slots are taken under a lock, for which nobody waits longer than a second: the process
that holds it may stand still. Slots of processes that have died are free: whoever looks next finds them. A file per PID
namespace, as processes of another have other numbers; other users' tasks, and what is no task, show in the headroom
only.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

import numpy as np

from sparkext.memory.probes import Tasks, process_probe

_SLOTS = 1024
_FIELDS = 8
_FIRST_GROUP = 2
_FILE_BYTES = (_SLOTS + 1) * _FIELDS * 8
_SWEEP_SECONDS = 1.0
_PATIENCE_SECONDS = 1.0
_PAUSE_SECONDS = 0.001
_SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def task_entered(otherwise: int) -> Iterator[Tasks]:
    """Count this process's task while it runs; give what counts those that share its memory.

    Where no register can be kept (a read-only machine, a file that is not ours), `otherwise` are taken to run.
    """
    try:
        path = _folder() / f"sparkext-{os.getuid()}-{_pid_namespace()}.tasks"
        register = TaskRegister(path, process_probe().groups)
    except OSError:
        yield lambda limit, group: otherwise if _is_shared(limit) else 1
        return
    with register:
        yield register.tasks


class TaskRegister:
    """One task's hold of the file at `path`: a slot of its own, and the view of all others.

    `groups` are the memory control groups of its process, by numbers, the innermost first.

    Raises OSError if the file or its lock cannot be had, or if it is anything but a file of this user's that no other
    may write.
    """

    def __init__(self, path: Path, groups: Sequence[int]) -> None:
        """Open the file, making it if need be, and take a slot."""
        self._descriptor = _open_private(path)
        self._own: int | None = None
        self._groups = groups[: _FIELDS - _FIRST_GROUP]
        self._swept = 0.0
        self._counted_at = -1
        self._counts: dict[int, int] = {}
        self._turn = Lock()
        try:
            # Not only named as large: a page that a full disk cannot give would end the process when it is touched.
            os.posix_fallocate(self._descriptor, 0, _FILE_BYTES)
            self._mapped = mmap.mmap(self._descriptor, _FILE_BYTES)
            whole = np.frombuffer(self._mapped, dtype=np.int64).reshape(_SLOTS + 1, _FIELDS)
            self._slots, self._changes = whole[:_SLOTS], whole[_SLOTS]
            del whole
            self._enter()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _enter(self) -> None:
        with self._locked(_PATIENCE_SECONDS) as is_held:
            if not is_held:
                raise TimeoutError("a process that holds the lock of the register stands still")
            self._sweep()
            free = np.flatnonzero(self._slots[:, 0] == 0)
            if free.size:
                self._own = int(free[0])
                fields = (os.getpid(), _started(os.getpid()) or 0, *self._groups)
                self._slots[self._own, : len(fields)] = fields
                self._changes[0] += 1

    def __enter__(self) -> TaskRegister:
        """Hold the slot."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the slot back."""
        with self._locked(_PATIENCE_SECONDS):
            if self._own is not None:
                self._free(self._own)
        del self._slots, self._changes
        self._mapped.close()
        os.close(self._descriptor)

    def tasks(self, limit: str, group: int) -> int:
        """Count the tasks, this one included, that draw on what a limit leaves. `group`: that of a control group."""
        if not _is_shared(limit):
            return 1
        if time.monotonic() > self._swept + _SWEEP_SECONDS:
            with self._locked() as is_held:
                if is_held:
                    self._sweep()
        changes = int(self._changes[0])
        if changes != self._counted_at:
            self._counts, self._counted_at = {}, changes
        if group not in self._counts:
            self._counts[group] = self._count(group)
        return self._counts[group]

    def _count(self, group: int) -> int:
        """Count the tasks within a control group, in any if 0."""
        taken = np.flatnonzero(self._slots[:, 0])
        if group:
            taken = taken[(self._slots[taken, _FIRST_GROUP:] == group).any(axis=1)]
        return max(1, taken.size)

    def _sweep(self) -> None:
        """Free the slots of processes that are no more."""
        self._swept = time.monotonic()
        for number in np.flatnonzero(self._slots[:, 0]):
            process, started = (int(value) for value in self._slots[number, :2])
            if _started(process) != started:
                self._free(int(number))

    def _free(self, number: int) -> None:
        """Give a slot back, its process last: who holds the lock may take it from then on."""
        self._slots[number, 1:] = 0
        self._slots[number, 0] = 0
        self._changes[0] += 1

    @contextmanager
    def _locked(self, patience: float = 0.0) -> Iterator[bool]:
        """Hold the lock if it can be had within some seconds, and return whether it could."""
        with self._turn:  # threads of a task share the file, and so its lock
            until = time.monotonic() + patience
            is_held = _is_taken(self._descriptor)
            while not is_held and time.monotonic() < until:
                time.sleep(_PAUSE_SECONDS)
                is_held = _is_taken(self._descriptor)
            try:
                yield is_held
            finally:
                if is_held:
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def _is_taken(descriptor: int) -> bool:
    """Lock a file unless another process does, and return whether that worked."""
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _is_shared(limit: str) -> bool:
    """Return whether a limit is that of several processes together."""
    return limit in ("cgroup", "available")


def _folder() -> Path:
    return _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())


def _open_private(path: Path) -> int:
    """Open a file of this user's for reading and writing, and no other: the folder may be everybody's."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    private = status.st_uid == os.getuid() and not status.st_mode & 0o077 and status.st_nlink == 1
    if not stat.S_ISREG(status.st_mode) or not private:
        os.close(descriptor)
        raise PermissionError(f"{path} is not a private file of this user's")
    return descriptor


def _started(process: int) -> int | None:
    """When a process started, in clock ticks since the machine did; None if there is no such process.

    Fields of `stat` follow the name, which may hold anything, in parentheses.
    """
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return None


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
