"""Tasks that share a node's memory count each other, even if one dies; on any fault, there is no register."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from sparkext.memory import register
from sparkext.memory.probes import LimitName, process_probe
from sparkext.memory.register import TaskRegister, task_entered

HOLDER = """
import sys, time
from pathlib import Path
from sparkext.memory.register import TaskRegister
own, above = map(int, sys.argv[2:])
with TaskRegister(Path(sys.argv[1]), [own, above]) as held:
    print(held.tasks("available", 0), held.tasks("cgroup", own), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks"


OWN, ABOVE, OTHER = 7, 1, 8


def entered(path: Path) -> TaskRegister:
    return TaskRegister(path, [OWN, ABOVE])


def holder(path: Path, group: int = OWN) -> tuple[subprocess.Popen[str], str]:
    """Start another process that holds a slot; return it and the number that it counted."""
    command = [sys.executable, "-c", HOLDER, str(path), str(group), str(ABOVE)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_tasks_count_each_other_while_they_run(path: Path) -> None:
    with entered(path) as first:
        assert [first.tasks("available", 0), first.tasks("cgroup", OWN)] == [1, 1]
        with entered(path) as second:
            assert first.tasks("available", 0) == second.tasks("available", 0) == 2
        assert first.tasks("available", 0) == 1
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("limit", ["rlimit_as", "configured"])
def test_a_limit_of_one_process_is_shared_with_nobody(path: Path, limit: LimitName) -> None:
    with entered(path) as first, entered(path):
        assert first.tasks(limit, 0) == 1


def test_a_process_that_was_killed_counts_no_more(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with entered(path) as own:
        process, counted = holder(path)
        assert counted == "2 2"
        assert own.tasks("available", 0) == 2
        process.send_signal(signal.SIGKILL)
        process.wait()
        monkeypatch.setattr(register, "_SWEEP_SECONDS", 0)
        assert own.tasks("available", 0) == 1
    with entered(path) as next_one:
        assert next_one.tasks("available", 0) == 1


STOPPED = """
import os, signal, sys
from pathlib import Path
from sparkext.memory.register import TaskRegister
with TaskRegister(Path(sys.argv[1]), [7, 1]) as held, held._hold_lock(1.0):
    print("locked", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_process_that_stands_still_with_the_lock_stops_nobody(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "_SWEEP_SECONDS", 0)
    monkeypatch.setattr(register, "_PATIENCE_SECONDS", 0.1)
    seen: list[int] = []

    def enter_and_leave() -> None:
        with entered(path) as own:
            process = subprocess.Popen([sys.executable, "-c", STOPPED, str(path)], stdout=subprocess.PIPE, text=True)
            holders.append(process)
            assert process.stdout is not None and process.stdout.readline() == "locked\n"
            seen.append(own.tasks("available", 0))
            with pytest.raises(TimeoutError, match="makes no progress"):
                entered(path)
            monkeypatch.setattr(register, "_choose_register_folder", lambda: path.parent)
            monkeypatch.setattr(register, "_read_pid_namespace", lambda: "ns")
            path.rename(path.parent / f"sparkext-{os.getuid()}-ns.tasks")
            with task_entered(3) as tasks:
                seen.append(tasks("available", 0))
        seen.append(-1)

    holders: list[subprocess.Popen[str]] = []
    waiting = threading.Thread(target=enter_and_leave, daemon=True)
    waiting.start()
    waiting.join(60)
    for holder_ in holders:
        holder_.kill()
        holder_.wait()
    assert seen == [2, 3, -1], "it went on"
    with entered(path.parent / f"sparkext-{os.getuid()}-ns.tasks") as own:
        assert own.tasks("available", 0) == 1, "and gave its slot back"


def test_a_number_that_another_process_got_since_does_not_keep_the_slot(path: Path) -> None:
    """Process ids are reused: the start time of the process identifies it."""
    with entered(path) as own:
        own._slots[500, :2] = (os.getppid(), 12345)
        assert own.tasks("available", 0) == 2
        own._sweep()
        assert own.tasks("available", 0) == 1


def test_tasks_of_another_control_group_share_the_machine_and_the_group_above(path: Path) -> None:
    with entered(path) as own:
        process, counted = holder(path, OTHER)
        try:
            assert counted == "2 1"
            assert own.tasks("available", 0) == own.tasks("cgroup", ABOVE) == 2
            assert own.tasks("cgroup", OWN) == own.tasks("cgroup", OTHER) == 1
        finally:
            process.kill()
            process.wait()


def test_a_full_ledger_still_counts(path: Path) -> None:
    with entered(path) as own:
        own._slots[:, :2] = (os.getpid(), register._read_start_time(os.getpid()))
        with entered(path) as late:
            assert late.tasks("available", 0) == register._SLOTS
        assert int(np.count_nonzero(own._slots[:, 0])) == register._SLOTS


def test_a_full_disk_leaves_no_ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapped page that cannot be allocated would end the process by a signal, so the space is allocated first."""

    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(register, "_SHARED_MEMORY", path.parent)
    monkeypatch.setattr(os, "posix_fallocate", full)
    process_probe()  # opens files of its own
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with task_entered(otherwise=3) as tasks:
        assert tasks("available", 0) == 3
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_what_is_not_a_private_file_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "_SHARED_MEMORY", tmp_path)
    name = f"sparkext-{os.getuid()}-{register._read_pid_namespace()}.tasks"
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with task_entered(otherwise=3) as tasks:
        assert (tasks("cgroup", 0), tasks("rlimit_as", 0)) == (3, 1)
    assert (tmp_path / "elsewhere").read_bytes() == b"theirs"
    (tmp_path / name).unlink()
    (tmp_path / name).write_bytes(b"")
    (tmp_path / name).chmod(0o644)
    with task_entered(otherwise=3) as tasks:
        assert tasks("cgroup", OWN) == 3
    (tmp_path / name).chmod(0o600)
    with task_entered(otherwise=3) as tasks:
        assert tasks("cgroup", OWN) == 1
