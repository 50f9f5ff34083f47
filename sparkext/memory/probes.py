"""The memory probe: measures how many bytes this worker process can still allocate before it hits a limit.

It reads four limits, and the tightest counts: the limits of control groups (version 1 or 2, including all ancestors),
the address space (`RLIMIT_AS`, set by `spark.executor.pyspark.memory`), the machine's available memory, and the
configured limit of a task. Swap is never counted as free, as the probe is meant to prevent swapping. If nothing is
readable, as on systems other than Linux, the headroom is unknown rather than estimated.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from sparkext.memory import address_space
from sparkext.memory.control_groups import ControlGroup, find_control_groups
from sparkext.memory.kernel_file import KernelFile, parse_field, parse_number
from sparkext.wording import format_bytes

LimitName = Literal["cgroup", "rlimit_as", "available", "configured"]

Tasks = Callable[[str, int], int]
"""Counts the tasks that share a limit, given its name and the number of its control group (0 without one)."""

# Costs of reads, measured on Linux 6.18 (version 1, idle machine), in microseconds:
# memory.usage_in_bytes 0.6, memory.limit_in_bytes 0.8, statm 1.2, getrlimit 0.5, meminfo 5, memory.stat 7.
# Therefore, usage and statm are read more often, the rest at most every _FRESH_SECONDS. Version 2 (not measured)
# gathers the counters of all cores for memory.stat: the pause grows with the cost, so that these reads need at most
# 1/_PAUSE_FACTOR of the time, but does not exceed _STALE_SECONDS. headroom() costs 1.3 without a limit, 6 with
# RLIMIT_AS and three limited groups, and 55 in the latter case if everything is read. Between kernels, which evict its
# data from the CPU caches, it costs six times as much. Therefore, a result is reused for the time that all cores
# together need to allocate a hundredth of it: 1 ms with 1 GiB free and two cores. If the address space is limited,
# results are not reused, as a single call can reserve any part of it without touching it.
_FRESH_SECONDS = 0.005
_STALE_SECONDS = 0.050
_PAUSE_FACTOR = 400
_TAKEN_PER_SECOND = (os.cpu_count() or 1) << 32
"""Maximum rate at which the processes of a machine touch new pages, in bytes per second: a core reaches 0.5 to 4 GB."""

_UNNOTICED = 1 / 100


def _count_one_task(limit: str, group: int) -> int:
    return 1


class Headroom(NamedTuple):
    """Free memory in bytes, and the name of the binding limit."""

    bytes: int
    limit: LimitName


class _CachedHeadroom(NamedTuple):
    """A result of `headroom` for `tasks`, which is reused until the clock reaches `until`."""

    until: float
    tasks: Tasks | None
    headroom: Headroom | None
    group: int


_NOT_CACHED = _CachedHeadroom(float("-inf"), None, None, 0)


class MemoryProbe:
    """Measures the headroom of the process that creates it, cheaply enough for a call before every operator call.

    File descriptors are opened once. They belong to the process that opened them: after a fork the child needs its own
    probe, see `process_probe`.

    The numbers of control groups are the same in all processes. `groups`: the groups of this process, innermost first.
    `binding_group` is the group that was the tightest limit in the last measurement, 0 if another limit was.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        cgroup: Path = Path("/sys/fs/cgroup"),
        clock: Callable[[], float] = time.monotonic,
        address_space_limit: Callable[[], int | None] = address_space.read_limit,
    ) -> None:
        """Open the files below the mount points `proc` and `cgroup`. `clock` returns seconds."""
        self._clock = clock
        self._address_space_limit = address_space_limit
        self._due = float("-inf")
        self._cached = _NOT_CACHED
        self._expired = 0
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._statm = KernelFile(proc / "self" / "statm")
        self._meminfo = KernelFile(proc / "meminfo")
        self._groups = list(find_control_groups(proc, cgroup))
        self._limited: list[ControlGroup] = []
        self._address_space: int | None = None
        self._available: int | None = None
        self._own_limit = 0
        self.binding_group = 0

    @contextlib.contextmanager
    def limited(self, own_bytes: int) -> Iterator[None]:
        """Apply a limit to the process's own memory (see `own_bytes`) within this context; 0 for none."""
        previous, self._own_limit = self._own_limit, own_bytes
        self.expire()
        try:
            yield
        finally:
            self._own_limit = previous
            self.expire()

    def count_tasks(self, tasks: Tasks, limit: str) -> int:
        """Return the number of tasks that share a limit; for control groups, the tightest in the last measurement."""
        return tasks(limit, self.binding_group)

    def headroom(self, tasks: Tasks = _count_one_task) -> Headroom | None:
        """Return the bytes that this process can still allocate, never negative; None if no limit is known.

        The result is for the limit whose free bytes, divided by the number of `tasks` that share the limit, are fewest.
        The usage of the address space is current. The usage of control groups is current except for memory allocated
        within the reuse time of a result. Reclaimable memory, available memory and the limits are at most twice
        `_STALE_SECONDS` old.
        """
        now = self._clock()
        cached = self._cached
        if now < cached.until and tasks is cached.tasks:
            self.binding_group = cached.group
            return cached.headroom
        expired = self._expired
        readings = self._readings()
        own_bytes = self.own_bytes() if self._own_limit else None
        if own_bytes is not None:
            readings.append((self._own_limit - own_bytes, "configured", 0))
        tightest = self._choose_tightest(readings, tasks)
        if tightest is not None and self._address_space is None:
            reuse_seconds = tightest.bytes * _UNNOTICED / _TAKEN_PER_SECOND
            until = now + min(reuse_seconds, _STALE_SECONDS)
            self._cached = _CachedHeadroom(until, tasks, tightest, self.binding_group)
            if expired != self._expired:  # another thread has called `expire` during this measurement
                self._cached = _NOT_CACHED
        return tightest

    def of_system(self) -> Headroom | None:
        """Return the headroom without the limit of `limited`, which does not apply to file pages."""
        return self._choose_tightest(self._readings(), _count_one_task)

    def _choose_tightest(self, readings: list[tuple[int, LimitName, int]], tasks: Tasks) -> Headroom | None:
        tightest, least = None, float("inf")
        for free, limit, group in readings:
            share = max(0, free) / tasks(limit, group)
            if tightest is None or share < least:
                tightest, least = Headroom(max(0, free), limit), share
                self.binding_group = group
        return tightest

    def _readings(self) -> list[tuple[int, LimitName, int]]:
        """Return the free bytes of each limit, its name, and the number of its control group, or 0."""
        if self._clock() >= self._due:
            self._refresh()
        readings: list[tuple[int, LimitName, int]] = []
        if self._available is not None:
            readings.append((self._available, "available", 0))
        for group in self._limited:
            free = group.free()
            if free is not None:
                readings.append((free, "cgroup", group.number))
        if self._address_space is not None:
            mapped = self._read_mapped_bytes()
            if mapped is not None:
                readings.append((self._address_space - mapped, "rlimit_as", 0))
        return readings

    @property
    def groups(self) -> list[int]:
        """The numbers of the control groups that account for this process's memory."""
        return [group.number for group in self._groups]

    def expire(self) -> None:
        """Discard cached values, because memory has just been returned to the system."""
        self._expired += 1
        self._due = float("-inf")
        self._cached = _NOT_CACHED

    def own_bytes(self) -> int | None:
        """Return the bytes of resident memory that are neither shared nor mapped from files; None if unknown."""
        words = self._statm.read().split()
        return (int(words[1]) - int(words[2])) * self._page_bytes if len(words) > 2 else None

    def describe(self) -> list[tuple[str, str]]:
        """Return a pair of name and value for each limit, with the file of the value; the last pair is the headroom."""
        self.expire()
        headroom = self.headroom()
        self._refresh()
        lines = [group.describe() for group in self._groups] or [("cgroup", "none found")]
        limit, mapped = self._address_space, self._read_mapped_bytes()
        if limit is None:
            space = "no limit"
        else:
            used = "unknown" if mapped is None else format_bytes(mapped)
            space = f"limit {format_bytes(limit)}, used {used} ({self._statm.path})"
        available = "unknown" if self._available is None else format_bytes(self._available)
        result = "unknown" if headroom is None else f"{format_bytes(headroom.bytes)}, determined by {headroom.limit}"
        return [
            *lines,
            ("address space (RLIMIT_AS)", space),
            ("available (MemAvailable)", f"{available} ({self._meminfo.path})"),
            ("headroom", result),
        ]

    def close(self) -> None:
        """Close the file descriptors. From then on, the headroom is unknown."""
        self.expire()
        for file in (self._statm, self._meminfo):
            file.close()
        for group in self._groups:
            group.close()
        self._refresh()

    def _refresh(self) -> None:
        """Read again the values that are too expensive to read every time, and schedule the next refresh."""
        start = self._clock()
        for group in self._groups:
            group.refresh()
        self._limited = [group for group in self._groups if group.limit is not None]
        self._address_space = self._address_space_limit()
        available = parse_field(b"\n" + self._meminfo.read(), b"\nMemAvailable:")
        self._available = None if available is None else available * 1024
        end = self._clock()
        self._due = end + min(max((end - start) * _PAUSE_FACTOR, _FRESH_SECONDS), _STALE_SECONDS)

    def _read_mapped_bytes(self) -> int | None:
        """Return the bytes of address space in use, from the first field of statm; None if unknown."""
        pages = parse_number(self._statm.read().partition(b" ")[0])
        return None if pages is None else pages * self._page_bytes


_current: tuple[int, MemoryProbe] | None = None


def process_probe() -> MemoryProbe:
    """Return the probe of this process, opened at the first call. A forked child gets its own."""
    global _current
    pid = os.getpid()
    if _current is None or _current[0] != pid:
        if _current is not None:
            _current[1].close()  # Inherited by a fork: its descriptors belong to the parent.
        _current = (pid, MemoryProbe())
    return _current[1]
