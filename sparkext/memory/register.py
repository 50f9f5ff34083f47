"""The register of running tasks that share this node's memory: a small file with one slot per task.

All workers measure the same headroom, and tasks that decide at the same moment would all spend it. Each task therefore
divides the headroom by the number of running tasks. The tasks are counted here, as executors and applications do not
communicate. A slot contains

    process id │ its start time │ its memory control group │ the parent group │ … │ 0

as int64 numbers. If the limit of a group binds, the tasks in it or below it count: executors with their own groups
share the memory that their parent group leaves. The file is mapped. A change counter follows the slots, and a count is
valid until the counter changes. Slots are allocated under a lock, with a timeout of one second, since the process that
holds it may be suspended. Slots of dead processes are freed by the next process that checks. Each PID namespace has its
own file, as process ids differ. Tasks of other users and processes that are not tasks are visible in the headroom only.
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
    """Register this process's task while it runs; yield the function that counts the tasks that share its memory.

    If no register can be used (a read-only machine, a file of another user), `otherwise` is used as the count.
    """
    try:
        path = _choose_register_folder() / f"sparkext-{os.getuid()}-{_read_pid_namespace()}.tasks"
        register = TaskRegister(path, process_probe().groups)
    except OSError:
        yield lambda limit, group: otherwise if _is_shared(limit) else 1
        return
    with register:
        yield register.tasks


class TaskRegister:
    """One task's access to the register at `path`: its own slot, and a view of all slots.

    `groups`: the numbers of the memory control groups of its process, innermost first.

    Raises OSError if the file or its lock is not available, or if it is not a regular file of this user that no other
    user can access.
    """

    def __init__(self, path: Path, groups: Sequence[int]) -> None:
        """Open the file, create it if necessary, and allocate a slot."""
        self._descriptor = _open_private(path)
        self._slot: int | None = None
        self._groups = groups[: _FIELDS - _FIRST_GROUP]
        self._swept = 0.0
        self._counted_at = -1
        self._counts: dict[int, int] = {}
        self._turn = Lock()
        try:
            # Allocate the pages: on a full disk, the first access to an unallocated page would kill the process.
            os.posix_fallocate(self._descriptor, 0, _FILE_BYTES)
            self._mapped = mmap.mmap(self._descriptor, _FILE_BYTES)
            table = np.frombuffer(self._mapped, dtype=np.int64).reshape(_SLOTS + 1, _FIELDS)
            self._slots, self._changes = table[:_SLOTS], table[_SLOTS]
            del table
            self._enter()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _enter(self) -> None:
        with self._hold_lock(_PATIENCE_SECONDS) as is_held:
            if not is_held:
                raise TimeoutError("the process that holds the lock of the register makes no progress")
            self._sweep()
            free = np.flatnonzero(self._slots[:, 0] == 0)
            if free.size:
                self._slot = int(free[0])
                fields = (os.getpid(), _read_start_time(os.getpid()) or 0, *self._groups)
                self._slots[self._slot, : len(fields)] = fields
                self._changes[0] += 1

    def __enter__(self) -> TaskRegister:
        """Return the register; its slot is already allocated."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the slot and close the file."""
        with self._hold_lock(_PATIENCE_SECONDS):
            if self._slot is not None:
                self._free(self._slot)
        del self._slots, self._changes
        self._mapped.close()
        os.close(self._descriptor)

    def tasks(self, limit: str, group: int) -> int:
        """Return the number of tasks, including this one, that share a limit. `group`: its control group, or 0."""
        if not _is_shared(limit):
            return 1
        if time.monotonic() > self._swept + _SWEEP_SECONDS:
            with self._hold_lock() as is_held:
                if is_held:
                    self._sweep()
        changes = int(self._changes[0])
        if changes != self._counted_at:
            self._counts, self._counted_at = {}, changes
        if group not in self._counts:
            self._counts[group] = self._count(group)
        return self._counts[group]

    def _count(self, group: int) -> int:
        """Count the tasks within a control group; all tasks for group 0."""
        slots = np.flatnonzero(self._slots[:, 0])
        if group:
            slots = slots[(self._slots[slots, _FIRST_GROUP:] == group).any(axis=1)]
        return max(1, slots.size)

    def _sweep(self) -> None:
        """Free the slots of processes that no longer exist."""
        self._swept = time.monotonic()
        for number in np.flatnonzero(self._slots[:, 0]):
            process, started = (int(value) for value in self._slots[number, :2])
            if _read_start_time(process) != started:
                self._free(int(number))

    def _free(self, number: int) -> None:
        """Free a slot. The process id is cleared last: from then on, the slot can be allocated."""
        self._slots[number, 1:] = 0
        self._slots[number, 0] = 0
        self._changes[0] += 1

    @contextmanager
    def _hold_lock(self, patience: float = 0.0) -> Iterator[bool]:
        """Try to acquire the lock within `patience` seconds; yield whether it was acquired."""
        with self._turn:  # the threads of a task share the descriptor, and therefore its lock
            until = time.monotonic() + patience
            is_held = _try_lock(self._descriptor)
            while not is_held and time.monotonic() < until:
                time.sleep(_PAUSE_SECONDS)
                is_held = _try_lock(self._descriptor)
            try:
                yield is_held
            finally:
                if is_held:
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def _try_lock(descriptor: int) -> bool:
    """Try to lock a file without waiting; return whether it was locked."""
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _is_shared(limit: str) -> bool:
    """Return whether several processes share a limit."""
    return limit in ("cgroup", "available")


def _choose_register_folder() -> Path:
    return _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())


def _open_private(path: Path) -> int:
    """Open a private file of this user for reading and writing; fail for any other file. The folder may be shared."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    private = status.st_uid == os.getuid() and not status.st_mode & 0o077 and status.st_nlink == 1
    if not stat.S_ISREG(status.st_mode) or not private:
        os.close(descriptor)
        raise PermissionError(f"{path} is not a private file of this user")
    return descriptor


def _read_start_time(process: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if there is no such process.

    The fields of `stat` follow the process name, which is in parentheses and may contain any characters.
    """
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return None


def _read_pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
