"""Checks that budgets follow memory: a pipeline runs while its limit is halved, and while a neighbour takes memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from bench.cases.memory.study_worker import JOINS, RUNNING, command, expected
from bench.control_groups import ControlGroup, NoControlGroupsError, mib, python, run_limited, run_watched
from bench.harness import Bench, WrongAnswerError, step
from sparkext.wording import format_table

FAN_OUT = 100_000
BUILD_ROWS = 100_000
LIMIT = 600 << 20
GRABBED = 300 << 20
ROOM = 640 << 20
"""Bytes of address space in addition to those mapped when the pipeline begins; a quarter of them during the cut."""

PHASE_SECONDS = 2.0
SETTLING_SECONDS = 0.5
"""Seconds at the start of a phase that are not evaluated: the neighbour has to take its memory, and budgets to grow."""

TIMEOUT = 120
KEPT = {"MIMALLOC_PURGE_DELAY": "60000"}
"""The process keeps freed memory, as workers do that are forked from the extension's daemon."""

_NEIGHBOUR = "import sys, time\nx = bytearray(int(sys.argv[1]))\nx[::4096] = b'x' * len(x[::4096])\ntime.sleep(600)"

Step = tuple[str, Callable[[], bool]]
"""A name, and a function that performs the step. It returns False if the step is not possible yet."""


@dataclass
class Trace:
    """The course of a run: samples are (time, limit, usage), events (time, name); Unix time, bytes."""

    samples: list[tuple[float, int, int]] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)


class Script:
    """Performs the steps one by one while a pipeline runs, a phase apart, and samples limit and usage of memory."""

    def __init__(self, running: Path, steps: Sequence[Step], sample: Callable[[], tuple[int, int]]) -> None:
        """The file `running` exists as soon as the pipeline begins; `sample` returns limit and usage in bytes."""
        self._running = running
        self._steps = list(steps)
        self._sample = sample
        self.trace = Trace()

    def play(self) -> None:
        """Take a sample, and perform the next step if it is due."""
        if not self._running.exists():
            return
        now = time.time()
        if not self.trace.events:
            self.trace.events.append((now, "begins"))
        self.trace.samples.append((now, *self._sample()))
        if self._steps and now > self.trace.events[-1][0] + PHASE_SECONDS:
            name, take = self._steps[0]
            if not take():
                return
            self.trace.events.append((now, name))
            del self._steps[0]

    @property
    def played(self) -> bool:
        """Whether all steps were performed."""
        return not self._steps


def run_group(bench: Bench) -> None:
    """Run in a control group: the limit is halved and restored, then another process takes memory and frees it."""
    with tempfile.TemporaryDirectory() as folder:
        rate = _prepared(Path(folder))
        given = _configuration(rate, phases=5)
        neighbours: list[subprocess.Popen[Any]] = []
        script: list[Script] = []

        def meanwhile(group: ControlGroup) -> None:
            if not script:
                script.append(_group_script(group, Path(folder) / RUNNING, neighbours))
            script[0].play()

        with step("in a control group"), _ended(neighbours):
            outcome = run_limited(command("run", Path(folder), given), LIMIT, TIMEOUT, KEPT, meanwhile)
        found = {"ending": outcome.ending, "seconds": outcome.seconds, "peak": outcome.peak, "swap": outcome.swap}
        if outcome.ending != "finished" or outcome.swap:
            raise WrongAnswerError(f"{found}: {outcome.errors[-1000:]}")
        _report(bench, given, json.loads(outcome.output), script[0], found)


def run_address_space(bench: Bench) -> None:
    """Run without a control group: the limit of the address space is cut and restored."""
    with tempfile.TemporaryDirectory() as folder:
        rate = _prepared(Path(folder))
        given = _configuration(rate, phases=3)
        with step("with a limited address space"):
            script: list[Script] = []

            def meanwhile(process: subprocess.Popen[str]) -> None:
                if not script:
                    script.append(_address_space_script(process.pid, Path(folder) / RUNNING))
                with suppress(ProcessLookupError, FileNotFoundError, IndexError):  # the process has just ended
                    script[0].play()

            outcome = run_watched(command("run", Path(folder), given), TIMEOUT, KEPT, meanwhile)
        found = {"ending": outcome.ending, "seconds": outcome.seconds}
        if outcome.ending != "finished":
            raise WrongAnswerError(f"{found}: {outcome.errors[-1000:]}")
        _report(bench, given, json.loads(outcome.output), script[0], found)


def _prepared(folder: Path) -> float:
    """Write the build sides and their indexes; return the result rows per second without limits."""
    with step("build sides and indexes"):
        for fan_out in (1, FAN_OUT):
            _call(folder, "prepare", {"rows": BUILD_ROWS, "fan_out": fan_out})
        _call(folder, "run", _configured(1))
    with step("how fast it is"):
        answer = json.loads(_call(folder, "run", _configured(400)))
    (folder / RUNNING).unlink()
    return float(answer["rows"] / answer["seconds"])


def _configured(probe_rows: int) -> dict[str, Any]:
    return {
        "delivery": "adaptive",
        "threads": "cooperative",
        "cores": 1,
        "fan_out": FAN_OUT,
        "build_rows": BUILD_ROWS,
        "probe_rows": probe_rows,
    }


def _configuration(rate: float, phases: int) -> dict[str, Any]:
    """Configure a run of twice the given number of phases: the rate varies, and the run must not end early."""
    return _configured(max(1, round(2 * rate * PHASE_SECONDS * phases / FAN_OUT)))


def _call(folder: Path, what: str, given: dict[str, Any]) -> str:
    called = command(what, folder, given)
    return subprocess.run(called, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT).stdout


def _group_script(group: ControlGroup, running: Path, neighbours: list[subprocess.Popen[Any]]) -> Script:
    limit = [LIMIT]

    def set_limit(size: int) -> bool:
        try:
            group.limit(size)
        except NoControlGroupsError:  # more memory is in use at this moment
            return False
        limit[0] = size
        return True

    def grab() -> bool:
        neighbours.append(subprocess.Popen(group.joined_by(python("-c", _NEIGHBOUR, str(GRABBED)))))
        return True

    def give_back() -> bool:
        neighbours[0].kill()
        neighbours[0].wait()
        return True

    steps = [
        ("limit halved", lambda: set_limit(LIMIT // 2)),
        ("limit restored", lambda: set_limit(LIMIT)),
        ("neighbour takes", grab),
        ("neighbour returns", give_back),
    ]
    return Script(running, steps, lambda: (limit[0], group.usage()))


@contextmanager
def _ended(processes: list[subprocess.Popen[Any]]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _address_space_script(process: int, running: Path) -> Script:
    limit: list[int] = []

    def mapped() -> int:
        pages = Path(f"/proc/{process}/statm").read_text().split()[0]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def set_limit(size: int) -> bool:
        resource.prlimit(process, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        limit[:] = [size, *limit[1:]]
        return True

    def sample() -> tuple[int, int]:
        used = mapped()
        if not limit:
            set_limit(used + ROOM)
            limit.append(used)
        return limit[0], used

    steps = [
        ("limit cut", lambda: set_limit(limit[1] + ROOM // 4)),
        ("limit restored", lambda: set_limit(limit[1] + ROOM)),
    ]
    return Script(running, steps, sample)


def _report(bench: Bench, given: dict[str, Any], answer: dict[str, Any], script: Script, found: dict[str, Any]) -> None:
    if (answer["rows"], answer["total"]) != expected(given):
        raise WrongAnswerError(f"{answer['rows']} rows, {answer['total']}; expected {expected(given)}")
    events = script.trace.events
    end = events[-1][0] + PHASE_SECONDS
    if not script.played or answer["decisions"][-1][0] < end:
        raise WrongAnswerError("the run had ended before all was done to it")
    samples = [each for each in script.trace.samples if each[0] < end]
    decisions = [each for each in answer["decisions"] if each[0] < end]
    phases = list(phases_of(events, decisions))
    _print(phases)
    bench.record(**found, phases=phases, events=events, samples=samples, decisions=decisions)
    for before, after in pairwise(phases):
        falls = after["name"] in ("limit halved", "limit cut", "neighbour takes")
        if (after["budget"] < before["budget"]) != falls:
            raise WrongAnswerError(f"{after['name']}: budgets went from {before['budget']:,} to {after['budget']:,}")


def phases_of(events: Sequence[Sequence[Any]], decisions: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield a summary of the payload's budgets for each phase, from one event to the next, after it has settled.

    `swings` counts turns, see the function. A phase without oscillation has none, or one before budgets are stable.
    """
    last = max(decision[0] for decision in decisions)
    ends = [time for time, _ in events[1:]] + [last]
    for (began, name), end in zip(events, ends, strict=True):
        within = [each for each in decisions if began + SETTLING_SECONDS <= each[0] < end and each[1] == JOINS]
        budgets = [budget for _, _, _, budget, _ in within]
        yield {
            "name": name,
            "seconds": end - began,
            "headroom": median(free for _, _, free, _, _ in within),
            "lowest": min(budgets),
            "budget": median(budgets),
            "highest": max(budgets),
            "swings": swings(budgets),
        }


def swings(budgets: Sequence[int]) -> int:
    """Count the turns of budgets: a fall to half of a peak after a rise to twice a low, or the reverse."""
    turns, direction = 0, 0
    low = high = budgets[0]
    for budget in budgets:
        low, high = min(low, budget), max(high, budget)
        if direction >= 0 and budget <= high / 2:
            turns, direction, low = turns + (direction > 0), -1, budget
        elif direction <= 0 and budget >= low * 2:
            turns, direction, high = turns + (direction < 0), 1, budget
    return turns


def _print(phases: Sequence[dict[str, Any]]) -> None:
    table = [
        [
            phase["name"],
            f"{phase['seconds']:.1f}",
            mib(phase["headroom"]),
            *(f"{phase[name]:,.0f}" for name in ("lowest", "budget", "highest", "swings")),
        ]
        for phase in phases
    ]
    print(f"\n{format_table(['phase', 's', 'headroom MiB', 'lowest', 'median', 'highest', 'swings'], table)}\n")
    print(f"budgets of the payload in rows, {SETTLING_SECONDS} s after a phase began and later; rows and sum are right")
