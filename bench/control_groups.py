"""Runs a process and all its children under a memory limit of the operating system: a control group, version 1 or 2.

The limit covers memory and swap together: the system kills a process that exceeds it, instead of swapping.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")
_ENDING_SECONDS = 10


class NoControlGroupsError(Exception):
    """Control groups cannot be created on this machine; the message gives the reason."""


@dataclass(frozen=True)
class Outcome:
    """How a process ended (`finished`, `killed` for memory, `failed` or `too slow`), its time, memory and output.

    `peak`: the most bytes of memory, file pages included. `swap`: the most bytes of swap, in addition to them.
    """

    ending: str
    seconds: float
    peak: int
    swap: int
    output: str
    errors: str


def run_limited(
    command: Sequence[str],
    limit: int | None,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    meanwhile: Callable[[ControlGroup], None] | None = None,
) -> Outcome:
    """Run a command in a new group of `limit` bytes (None: no limit), and return how it ended.

    `meanwhile` is called about every 0.05 s while the command runs.

    Raises
    ------
    NoControlGroupsError
    """
    with control_group(limit) as group:
        found = run_watched(
            group.joined_by(command), timeout, environment, lambda _: meanwhile and meanwhile(group), group.kill
        )
        killed = found.ending == "failed" and group.kills() > 0
        return replace(found, ending="killed" if killed else found.ending, peak=group.peak(), swap=group.swap())


def run_watched(
    command: Sequence[str],
    timeout: float,
    environment: Mapping[str, str] | None,
    meanwhile: Callable[[subprocess.Popen[str]], object],
    kill: Callable[[], None] | None = None,
) -> Outcome:
    """Run a command, and return how it ended: `finished`, `failed` or `too slow`, without its memory.

    `meanwhile` is called about every 0.05 s while the command runs; `kill` ends a command that is too slow.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    ending = ""
    try:
        while True:
            try:
                output, errors = process.communicate(timeout=0.05)
                break
            except subprocess.TimeoutExpired:
                meanwhile(process)
                if time.perf_counter() - started > timeout:
                    ending = "too slow"
                    (kill or process.kill)()
    finally:
        process.kill()
    ending = ending or ("failed" if process.returncode else "finished")
    return Outcome(ending, time.perf_counter() - started, 0, 0, output, errors)


@dataclass(frozen=True)
class ControlGroup:
    """An existing control group, controlled by the files in its folder."""

    folder: Path
    version: int

    @property
    def processes(self) -> Path:
        """The file that lists its processes."""
        return self.folder / "cgroup.procs"

    def joined_by(self, command: Sequence[str]) -> list[str]:
        """Return the command as one that runs in the group: a shell joins it, then replaces itself by the command."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.processes), *command]

    def limit(self, size: int | None) -> None:
        """Set the limit of memory and swap together, also while processes run."""
        if self.version == 2:
            (self.folder / "memory.max").write_text("max" if size is None else str(size))
            with suppress(OSError):  # the system has no swap
                (self.folder / "memory.swap.max").write_text("max" if size is None else "0")
            return
        text = "-1" if size is None else str(size)
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        # The second limit may never be below the first. One write may fail at first, so both are tried twice.
        for _ in range(2):
            for name in names:
                with suppress(OSError):
                    (self.folder / name).write_text(text)
        if size is not None and int((self.folder / names[0]).read_text()) > size:
            raise NoControlGroupsError(f"{self.folder} does not take a limit of {size} bytes")

    def usage(self) -> int:
        """Return the bytes of memory in use, file pages included."""
        return int((self.folder / ("memory.usage_in_bytes" if self.version == 1 else "memory.current")).read_text())

    def peak(self) -> int:
        """Return the most bytes of memory that were in use at a time."""
        return int((self.folder / ("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak")).read_text())

    def swap(self) -> int:
        """Return the most bytes of swap that were in use at a time; 0 if the system does not count them."""
        if self.version == 1:
            with suppress(OSError):
                return max(0, int((self.folder / "memory.memsw.max_usage_in_bytes").read_text()) - self.peak())
            return 0
        with suppress(OSError):
            return int((self.folder / "memory.swap.peak").read_text())
        return 0

    def kills(self) -> int:
        """Return the number of processes that the system has killed for lack of memory."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        counts = dict(line.split() for line in (self.folder / name).read_text().splitlines())
        return int(counts.get("oom_kill", 0))

    def kill(self) -> None:
        """Kill all processes of the group."""
        for process in self._members():
            with suppress(ProcessLookupError):
                os.kill(process, 9)

    def remove(self) -> None:
        """Kill the remaining processes, and remove the group."""
        until = time.monotonic() + _ENDING_SECONDS
        while self._members() and time.monotonic() < until:
            self.kill()
            time.sleep(0.02)
        while True:
            try:
                return self.folder.rmdir()
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _members(self) -> list[int]:
        return [int(line) for line in self.processes.read_text().split()]


@contextmanager
def control_group(limit: int | None) -> Iterator[ControlGroup]:
    """Create a group; at the end, kill its remaining processes and remove it.

    Raises
    ------
    NoControlGroupsError
    """
    version, parent = (1, _V1) if (_V1 / "memory.limit_in_bytes").exists() else (2, _V2)
    folder = parent / f"sparkext-{uuid.uuid4().hex[:12]}"
    try:
        if version == 2:
            (parent / "cgroup.subtree_control").write_text("+memory")
        folder.mkdir()
    except OSError as error:
        raise NoControlGroupsError(f"no control group can be made in {parent}: {error.strerror}") from error
    group = ControlGroup(folder, version)
    try:
        group.limit(limit)
        yield group
    finally:
        group.remove()


def python(*arguments: str) -> list[str]:
    """Return the command that runs this interpreter."""
    return [sys.executable, *arguments]


def mib(size: float) -> str:
    """Format bytes as MiB."""
    return f"{size / 2**20:,.1f}"
