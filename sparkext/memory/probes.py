"""The memory probe: how many bytes this worker process could still take before something breaks.

Four limits are looked at, and the tightest counts: the control group's (version 1 or 2, every ancestor
too), the address space (`RLIMIT_AS`, which `spark.executor.pyspark.memory` sets), the machine's available
memory, and what a task is configured to keep within. Swap is never counted: to reach it is what the probe is
there to prevent. Where nothing is readable, as on anything but Linux, the headroom is unknown and not guessed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from sparkext.wording import size

LimitName = Literal["cgroup", "rlimit_as", "available", "configured"]
Tasks = Callable[[str, int], int]
"""Counts the tasks that share what a limit leaves, by its name and the number of its control group, if it has one."""

# Larger than any file read here (memory.stat and meminfo stay below 4 KiB): one read gets a file whole.
_READ_BYTES = 16_384
# Version 1 has no word for "unlimited" but a huge number, which depends on the page size.
_UNLIMITED = 1 << 60

# What a read costs, measured on Linux 6.18 (version 1, idle machine), in microseconds:
# memory.usage_in_bytes 0.6, memory.limit_in_bytes 0.8, statm 1.2, limits 3, meminfo 5, memory.stat 7.
# So usage and statm are read more often, the rest at most every _FRESH_SECONDS. Version 2 (not measured) gathers the
# counters of all cores before it answers memory.stat: the pause grows with the cost until these reads take
# 1/_PAUSE_FACTOR of the time, yet not beyond _STALE_SECONDS. headroom() takes 1.3 without a limit, 6 with RLIMIT_AS and
# three limited groups, and 55 in the latter case when everything is due; between kernels, which leave nothing of it in
# the caches, six times as much. Therefore a result is believed for as long as all cores together need to take a
# hundredth of it: 1 ms where 1 GiB is free and two cores could take it. Not where the address space is limited: one
# call takes any part of that without touching it.
_FRESH_SECONDS = 0.005
_STALE_SECONDS = 0.050
_PAUSE_FACTOR = 400
_TAKEN_PER_SECOND = (os.cpu_count() or 1) << 32
"""Bytes of new pages that the processes of a machine touch at most: a core gets 0.5 to 4 GB."""
_UNNOTICED = 1 / 100


def _alone(limit: str, group: int) -> int:
    return 1


class Headroom(NamedTuple):
    """Free memory in bytes, and the limit that leaves no more."""

    bytes: int
    limit: LimitName


class _Belief(NamedTuple):
    """A result of `headroom` that stands until the clock says `until`, for these tasks."""

    until: float
    tasks: Tasks | None
    headroom: Headroom | None
    group: int


_NO_BELIEF = _Belief(float("-inf"), None, None, 0)


class _File:
    """A small kernel file that is opened once and read again and again. A missing one reads as empty."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY)

    def read(self) -> bytes:
        """The whole content as of now."""
        if self._descriptor is None:
            return b""
        try:
            return os.pread(self._descriptor, _READ_BYTES, 0)
        except OSError:  # The control group was removed meanwhile.
            return b""

    def number(self) -> int | None:
        """The content as an integer; None for `max`, for garbage and for nothing."""
        return _number(self.read())

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@dataclass(frozen=True)
class _Layout:
    """Where a version of control groups keeps what the probe needs.

    Memory that the kernel can take back at once is not used up: file pages on both LRU lists. The active
    list is included, unlike in what Kubernetes calls the working set, since pages get there by being read
    twice and are dropped all the same; neither list holds tmpfs pages, which only swap could free. Pages that
    are dirty or being written are excluded: to free them takes disk writes that an allocation would have to
    wait for. Mapped pages, such as an index over a build side, are included: an output that displaces a few
    of them costs some reads, but without them a build side near the limit would leave no headroom at all.
    """

    name: str
    limits: tuple[str, ...]
    usage: str
    file_pages: tuple[str, ...]
    unwritten_pages: tuple[str, ...]


_V1 = _Layout(
    name="cgroup v1",
    limits=("memory.limit_in_bytes",),
    usage="memory.usage_in_bytes",
    file_pages=("total_inactive_file", "total_active_file"),
    unwritten_pages=("total_dirty", "total_writeback"),
)
# Above memory.high nobody is killed, but the kernel stalls the processes: as good as the end.
_V2 = _Layout(
    name="cgroup v2",
    limits=("memory.max", "memory.high"),
    usage="memory.current",
    file_pages=("inactive_file", "active_file"),
    unwritten_pages=("file_dirty", "file_writeback"),
)


class _Level:
    """One control group on the way from the process up to the root."""

    def __init__(self, folder: Path, layout: _Layout) -> None:
        self.folder = folder
        self.number = folder.stat().st_ino if folder.is_dir() else 0
        self.name = layout.name
        self.limit: int | None = None
        self.reclaimable = 0
        self._limits = [_File(folder / name) for name in layout.limits]
        self._usage = _File(folder / layout.usage)
        self._stat = _File(folder / "memory.stat")
        self._file_pages = [_needle(name) for name in layout.file_pages]
        self._unwritten_pages = [_needle(name) for name in layout.unwritten_pages]

    def refresh(self) -> None:
        """Read again what changes slowly or costs much. Without a limit nothing else is needed."""
        limits = [limit for file in self._limits if (limit := file.number()) is not None]
        self.limit = min((limit for limit in limits if limit < _UNLIMITED), default=None)
        if self.limit is not None:
            stat = b"\n" + self._stat.read()
            pages = sum(_field(stat, needle) or 0 for needle in self._file_pages)
            self.reclaimable = max(0, pages - sum(_field(stat, needle) or 0 for needle in self._unwritten_pages))

    def free(self) -> int | None:
        """Bytes that the group may still take; None if it has no limit or does not say what it uses."""
        if self.limit is None or (usage := self._usage.number()) is None:
            return None
        return self.limit - max(0, usage - self.reclaimable)

    def describe(self) -> tuple[str, str]:
        label = f"{self.name} {self.folder}"
        if self.limit is None:
            return label, f"no limit ({', '.join(file.path.name for file in self._limits)})"
        usage = self._usage.number()
        used = "unknown" if usage is None else f"{size(usage)}, {size(self.reclaimable)} of it reclaimable"
        return (
            label,
            f"limit {size(self.limit)}, used {used} ({self._usage.path.name}, {self._stat.path.name})",
        )

    def close(self) -> None:
        for file in (*self._limits, self._usage, self._stat):
            file.close()


class MemoryProbe:
    """Measures the headroom of the process that creates it, cheaply enough to ask before every operator call.

    Descriptors are opened once. They belong to the process that opened them: after a fork the child needs a
    probe of its own, see `process_probe`.

    Control groups have numbers that are the same for all processes: `groups` are those of this process, the innermost
    first, `binding_group` is the one whose limit was the tightest when that was last asked for, 0 if another was.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        cgroup: Path = Path("/sys/fs/cgroup"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open what there is below the mount points `proc` and `cgroup`. `clock` gives seconds."""
        self._clock = clock
        self._due = float("-inf")
        self._belief = _NO_BELIEF
        self._expired = 0
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._limits = _File(proc / "self" / "limits")
        self._statm = _File(proc / "self" / "statm")
        self._meminfo = _File(proc / "meminfo")
        self._levels = list(_levels(proc, cgroup))
        self._limited: list[_Level] = []
        self._address_space: int | None = None
        self._available: int | None = None
        self._own_limit = 0
        self.binding_group = 0

    @contextlib.contextmanager
    def limited(self, own_bytes: int) -> Iterator[None]:
        """Hold the process's own memory (see `own_bytes`) against a limit meanwhile; 0 for none."""
        before, self._own_limit = self._own_limit, own_bytes
        self.expire()
        try:
            yield
        finally:
            self._own_limit = before
            self.expire()

    def headroom(self, tasks: Tasks = _alone) -> Headroom | None:
        """Bytes that this process may still take, never negative; None if no limit is known.

        Of several limits it is the one that leaves each of the `tasks` that share it the least. Usage of the address
        space is current, that of the control group but for what can have been taken of ample memory in a moment; what
        is reclaimable or available, and the limits, are at most twice `_STALE_SECONDS` old.
        """
        now = self._clock()
        belief = self._belief
        if now < belief.until and tasks is belief.tasks:
            self.binding_group = belief.group
            return belief.headroom
        expired = self._expired
        readings = self._readings()
        own = self.own_bytes() if self._own_limit else None
        if own is not None:
            readings.append((self._own_limit - own, "configured", 0))
        found = self._tightest(readings, tasks)
        if found is not None and self._address_space is None:
            calm = found.bytes * _UNNOTICED / _TAKEN_PER_SECOND
            self._belief = _Belief(now + min(calm, _STALE_SECONDS), tasks, found, self.binding_group)
            if expired != self._expired:  # another thread gave memory back while this one was reading
                self._belief = _NO_BELIEF
        return found

    def of_system(self) -> Headroom | None:
        """The same without the limit of `limited`, which pages of files do not count against."""
        return self._tightest(self._readings(), _alone)

    def _tightest(self, readings: list[tuple[int, LimitName, int]], tasks: Tasks) -> Headroom | None:
        found, least = None, float("inf")
        for free, limit, group in readings:
            share = max(0, free) / tasks(limit, group)
            if found is None or share < least:
                found, least = Headroom(max(0, free), limit), share
                self.binding_group = group
        return found

    def _readings(self) -> list[tuple[int, LimitName, int]]:
        """Return of each limit what it leaves, its name, and the number of its control group or 0."""
        if self._clock() >= self._due:
            self._refresh()
        readings: list[tuple[int, LimitName, int]] = []
        if self._available is not None:
            readings.append((self._available, "available", 0))
        for level in self._limited:
            free = level.free()
            if free is not None:
                readings.append((free, "cgroup", level.number))
        if self._address_space is not None:
            mapped = self._mapped()
            if mapped is not None:
                readings.append((self._address_space - mapped, "rlimit_as", 0))
        return readings

    @property
    def groups(self) -> list[int]:
        """Numbers of the control groups that account for this process's memory."""
        return [level.number for level in self._levels]

    def expire(self) -> None:
        """Read everything again when asked next: memory has just been given back."""
        self._expired += 1
        self._due = float("-inf")
        self._belief = _NO_BELIEF

    def own_bytes(self) -> int | None:
        """Bytes in memory that are this process's alone: resident, less what it shares or has mapped from files."""
        words = self._statm.read().split()
        return (int(words[1]) - int(words[2])) * self._page_bytes if len(words) > 2 else None

    def describe(self) -> list[tuple[str, str]]:
        """What was looked at: pairs of a name and its value with the file it came from, the result last."""
        self.expire()
        headroom = self.headroom()
        self._refresh()
        lines = [level.describe() for level in self._levels] or [("cgroup", "none found")]
        limit, mapped = self._address_space, self._mapped()
        if limit is None:
            address_space = f"no limit ({self._limits.path})"
        else:
            used = "unknown" if mapped is None else size(mapped)
            address_space = f"limit {size(limit)}, used {used} ({self._limits.path}, {self._statm.path})"
        available = "unknown" if self._available is None else size(self._available)
        result = "unknown" if headroom is None else f"{size(headroom.bytes)}, bound by {headroom.limit}"
        return [
            *lines,
            ("address space (RLIMIT_AS)", address_space),
            ("available (MemAvailable)", f"{available} ({self._meminfo.path})"),
            ("headroom", result),
        ]

    def close(self) -> None:
        """Release the descriptors. The probe knows nothing from then on."""
        self.expire()
        for file in (self._limits, self._statm, self._meminfo):
            file.close()
        for level in self._levels:
            level.close()
        self._refresh()

    def _refresh(self) -> None:
        """Read again what is too costly to read every time, and decide when to do so next."""
        start = self._clock()
        for level in self._levels:
            level.refresh()
        self._limited = [level for level in self._levels if level.limit is not None]
        self._address_space = _field(self._limits.read(), b"\nMax address space ")
        available = _field(b"\n" + self._meminfo.read(), b"\nMemAvailable:")
        self._available = None if available is None else available * 1024
        end = self._clock()
        self._due = end + min(max((end - start) * _PAUSE_FACTOR, _FRESH_SECONDS), _STALE_SECONDS)

    def _mapped(self) -> int | None:
        """Bytes of address space in use: the first field of statm, in pages."""
        pages = _number(self._statm.read().partition(b" ")[0])
        return None if pages is None else pages * self._page_bytes


_current: tuple[int, MemoryProbe] | None = None


def process_probe() -> MemoryProbe:
    """The probe of this process, opened at the first call. A forked child gets its own."""
    global _current
    pid = os.getpid()
    if _current is None or _current[0] != pid:
        if _current is not None:
            _current[1].close()  # Inherited over a fork: its descriptors describe the parent.
        _current = (pid, MemoryProbe())
    return _current[1]


def _levels(proc: Path, cgroup: Path) -> Iterator[_Level]:
    """The control groups that account for this process's memory, innermost first."""
    layout, base, path = _membership(proc, cgroup)
    if layout is None:
        return
    folder = _visible_folder(proc, base, path)
    while True:
        yield _Level(folder, layout)
        # In version 1, a parent may have been told not to account for its children.
        if folder == base or _read(folder.parent / "memory.use_hierarchy").strip() == b"0":
            return
        folder = folder.parent


def _membership(proc: Path, cgroup: Path) -> tuple[_Layout | None, Path, str]:
    """Layout, mount point and path of the memory control group, from lines `id:controllers:path`.

    Where version 1 has the memory controller, version 2 may be mounted beside it but cannot have it.
    """
    unified: str | None = None
    for line in os.fsdecode(_read(proc / "self" / "cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            return _V1, cgroup / "memory", path
        if line.startswith("0::"):
            unified = path
    return (None, cgroup, "/") if unified is None else (_V2, cgroup, unified)


def _visible_folder(proc: Path, base: Path, path: str) -> Path:
    """The folder of control group `path` below the mount point `base`.

    In a container the mount may show only a part of the hierarchy, whose name `mountinfo` tells and the path
    begins with; with a namespace the path may even lead outside (`/../other`). What is not visible under the
    mount falls back to the mount's own root, which is then the container's group.
    """
    inside = PurePosixPath(path)
    for line in os.fsdecode(_read(proc / "self" / "mountinfo")).splitlines():
        fields = line.split(" ", 5)
        if len(fields) == 6 and fields[4] == str(base) and inside.is_relative_to(fields[3]):
            inside = inside.relative_to(fields[3])
    folder = base / str(inside).lstrip("/")
    return folder if ".." not in inside.parts and folder.is_dir() else base


def _read(path: Path) -> bytes:
    """The content of a file that is read once; empty if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _number(text: bytes) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _needle(name: str) -> bytes:
    return b"\n%s " % name.encode()


def _field(text: bytes, needle: bytes) -> int | None:
    """The integer after `needle`, found without splitting the file; None if it is not there."""
    start = text.find(needle)
    if start < 0:
        return None
    words = text[start + len(needle) : start + len(needle) + 48].split(None, 1)
    return _number(words[0]) if words else None
