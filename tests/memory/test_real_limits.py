"""A pipeline in real control groups: it finishes although its result does not fit, even if the limit changes."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.cases.memory.study_worker import command, expected, prepare
from bench.control_groups import ControlGroup, NoControlGroupsError, Outcome, control_group, python, run_limited
from sparkext.kernels.runtime.jit import JIT_ENABLED

FAN_OUT = 100_000
BUILD_ROWS = 200_000
MIB = 1 << 20
HOG = "import sys, time\nx = bytearray(int(sys.argv[1]))\nx[::4096] = b'x' * len(x[::4096])\ntime.sleep(60)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return build sides with their indexes, built without a limit."""
    if not JIT_ENABLED:
        pytest.skip("takes too long without compiled kernels")
    try:
        with control_group(None):
            pass
    except NoControlGroupsError as problem:
        pytest.skip(str(problem))
    made = tmp_path_factory.mktemp("limits")
    for fan_out in (1, FAN_OUT):
        prepare(made, BUILD_ROWS, fan_out)
    assert joined(made, None, "adaptive", probe_rows=1).ending == "finished"
    return made


def joined(
    folder: Path,
    limit: int | None,
    delivery: str,
    probe_rows: int = 40,
    meanwhile: Callable[[ControlGroup], None] | None = None,
) -> Outcome:
    given = {"delivery": delivery, "threads": "cooperative", "cores": 1, "fan_out": FAN_OUT}
    given |= {"build_rows": BUILD_ROWS, "probe_rows": probe_rows}
    outcome = run_limited(command("run", folder, given), limit, 120, meanwhile=meanwhile)
    if outcome.ending == "finished":
        answer = json.loads(outcome.output)
        assert (answer["rows"], answer["total"]) == expected(given)
    return outcome


def gather_budgets(outcome: Outcome) -> list[int]:
    assert outcome.ending == "finished", outcome.errors
    decisions: list[list[Any]] = json.loads(outcome.output)["decisions"]
    return [budget for _, operator, _, budget, _ in decisions if operator == 3]


def test_an_explosion_stays_within_the_limit(folder: Path) -> None:
    """1.4 GB of result in a group of 400 MiB. Materialised delivery is killed there, which proves the limit."""
    limit = 400 * MIB
    adaptive = joined(folder, limit, "adaptive")
    budgets = gather_budgets(adaptive)
    assert adaptive.peak <= limit and adaptive.swap == 0
    assert min(budgets) < max(budgets), "memory was to bind"
    assert joined(folder, limit, "materialize").ending == "killed"


def test_budgets_follow_a_limit_that_falls_while_it_runs(folder: Path) -> None:
    lowered: list[float] = []

    def lower(group: ControlGroup) -> None:
        if not lowered and group.usage() > 150 * MIB:
            group.limit(300 * MIB)
            lowered.append(time.monotonic())

    outcome = joined(folder, 2048 * MIB, "adaptive", probe_rows=120, meanwhile=lower)
    budgets = gather_budgets(outcome)
    assert lowered
    assert min(budgets) < max(budgets)


def test_budgets_follow_memory_that_another_process_takes_and_returns(folder: Path) -> None:
    hogs: list[subprocess.Popen[bytes]] = []
    grabbed: list[float] = []

    def disturb(group: ControlGroup) -> None:
        if not hogs and group.usage() > 150 * MIB:
            hogs.append(subprocess.Popen(group.joined_by(python("-c", HOG, str(550 * MIB)))))
        elif hogs and not grabbed and group.usage() > 700 * MIB:
            grabbed.append(time.monotonic())
        elif grabbed and time.monotonic() > grabbed[0] + 0.3:
            hogs[0].kill()

    try:
        outcome = joined(folder, 900 * MIB, "adaptive", probe_rows=400, meanwhile=disturb)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    budgets = gather_budgets(outcome)
    lowest = budgets.index(min(budgets))
    assert min(budgets) < max(budgets)
    assert max(budgets[lowest:]) > min(budgets), "it was to grow back"
