"""A control group with a memory limit, for tests of memory use: of cgroup version 1, created by root."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MEMORY = Path("/sys/fs/cgroup/memory")


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """Create a group below the group of this process, and remove it at the end. Skip if it cannot be created."""
    if os.geteuid() != 0:
        pytest.skip("only root can make control groups")
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = next((path for _, controllers, path in lines if "memory" in controllers.split(",")), None)
    if own is None:
        pytest.skip("there is no memory controller of version 1")
    above = _MEMORY / own.lstrip("/")
    group = (above if above.is_dir() else _MEMORY) / f"sparkext-test-{uuid.uuid4().hex}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit))
        (group / "memory.swappiness").write_text("0")
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Remove the group, repeatedly, because a process that has just ended may still be counted."""
    for _ in range(100):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return


def run_in_group(group: Path, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process that enters the group before it loads anything."""
    return run_python(f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')\n{code}", *arguments)


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
