"""What all suites share: alternating runs, answers checked before times, one table, JSON lines.

A case is run in a process of its own, pinned to as many cores as it names, so that one engine's thread pool, memory
pool or JVM is no other case's business. Within that process the contestants take turns, run by run: what drifts
(clock rate, neighbours, page cache) hits all of them alike.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.text_table import text_table


class WrongAnswerError(Exception):
    """Contestants disagree: nothing is timed."""


TINY = 100
"""By how much less there is of everything in a run that only shows that a case works."""


@dataclass(frozen=True)
class Bench:
    """One run of one case: at a scale factor, on a number of threads. `tiny`: only to see that the case works."""

    case: str
    scale_factor: float
    threads: int
    runs: int
    data: Path
    results: Path | None = None
    tiny: bool = False

    def sized(self, rows: int) -> int:
        """The rows of a generated table: as many as given, or a small part of them."""
        return max(1, rows // TINY) if self.tiny else rows

    def folder(self, name: str) -> Path:
        """Where tables that are generated under this name are kept, beside those of TPC-H."""
        return self.data.parent / (f"{name}-tiny" if self.tiny else name)

    def record(self, **values: Any) -> None:
        """Append one result to the file of the run, if there is one. That begins with the facts."""
        if self.results is None:
            return
        line = {
            "suite": self.case.split(".")[0],
            "case": self.case,
            "scale_factor": self.scale_factor,
            "threads": self.threads,
            **values,
        }
        with self.results.open("a") as stream:
            stream.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class Case:
    """What `python -m bench --list` shows and `python -m bench NAME` runs.

    `scaled`: once per scale factor of TPC-H; `threaded`: once per number of threads, these if none are asked for; else
    on `threads` cores (None: on all). What has to be fetched, takes long, or says little more than
    its neighbours is run only when it is `named`.
    """

    name: str
    title: str
    run: Callable[[Bench], None]
    scaled: bool = True
    threaded: tuple[int, ...] = ()
    threads: int | None = None
    named: bool = False


@dataclass(frozen=True)
class Contestant:
    """`run` does the whole job once and drops its result; `answer` does it too, and says what to compare.

    `ours` marks what this package did: the others are held against it. Of a `group`, forms of one thing, only the
    fastest is timed. A `floor` does less than the job, to show what the rest of it costs: it competes with nobody.
    """

    name: str
    run: Callable[[], object]
    answer: Callable[[], object]
    ours: bool = False
    group: str = ""
    floor: bool = False


def same(name: str, run: Callable[[], object], ours: bool = False, group: str = "") -> Contestant:
    """A contestant whose job is its answer."""
    return Contestant(name, run, run, ours=ours, group=group)


@dataclass(frozen=True)
class Timing:
    """Wall and processor seconds of each run of one contestant."""

    contestant: Contestant
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median wall seconds."""
        return statistics.median(self.wall)


def verify(contestants: Sequence[Contestant]) -> object:
    """Let everyone answer once, which also compiles and warms up; return the answer that all agree on.

    Raises
    ------
    WrongAnswerError
        Names everyone's answer.
    """
    answers = {}
    for contestant in contestants:
        if contestant.floor:
            continue
        with step(f"checking {contestant.name}"):
            answers[contestant.name] = contestant.answer()
    first = next(iter(answers.values()))
    if any(answer != first for answer in answers.values()):
        width = max(map(len, answers))
        lines = "\n".join(f"  {name:<{width}}  {answer}" for name, answer in answers.items())
        raise WrongAnswerError(f"the answers differ, so nothing is timed:\n{lines}")
    return first


def measure(bench: Bench, contestants: Sequence[Contestant]) -> list[Timing]:
    """Time everyone, taking turns, after a warm-up, which also picks the form of a group.

    On tiny data only those are run whom `verify` has not run: who is timed by its answer has shown that it works.
    """
    if bench.tiny:
        contestants = [contestant for contestant in contestants if contestant.run is not contestant.answer]
    timings = [Timing(contestant) for contestant in fastest_forms(contestants, warm_up(bench, contestants))]
    take_turns(timings, bench.runs)
    return timings


def warm_up(bench: Bench, contestants: Sequence[Contestant]) -> dict[str, float]:
    """Run everyone once; return the seconds of each by name, nothing in a run on tiny data, whose times say nothing.

    Who is compared by what it answers when it is timed has been warmed up by `verify`: only forms of a group run again.
    """
    seconds: dict[str, float] = {}
    for contestant in () if bench.tiny else contestants:
        if contestant.run is contestant.answer and not contestant.group:
            continue
        with step(f"warming up: {contestant.name}"):
            seconds[contestant.name], _ = _timed(contestant.run)
    return seconds


def fastest_forms(contestants: Sequence[Contestant], warm: Mapping[str, float]) -> list[Contestant]:
    """Return who is timed, of each group the form that took the fewest seconds; tell which ones are not.

    Without a warm-up the first form stands for its group.
    """
    groups: dict[str, list[Contestant]] = {}
    for contestant in contestants:
        groups.setdefault(contestant.group or contestant.name, []).append(contestant)
    fastest = []
    for forms in groups.values():
        first, *others = sorted(forms, key=lambda form: warm.get(form.name, 0.0))
        fastest.append(first)
        for other in others if warm else ():
            print(
                f"  not timed: {other.name}, {warm[other.name]:.2f} s in the warm-up against {warm[first.name]:.2f} s"
            )
    return fastest


def take_turns(timings: Sequence[Timing], runs: int) -> None:
    """Time everyone `runs` times, one run of each after the other."""
    for number in range(1, runs + 1):
        for timing in timings:
            with step(f"run {number} of {runs}: {timing.contestant.name}"):
                wall, cpu = _timed(timing.contestant.run)
            timing.wall.append(wall)
            timing.cpu.append(cpu)


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def record(bench: Bench, timings: Sequence[Timing], rows: int, **values: Any) -> None:
    """Write the timings of one table as JSON lines. `rows` is what rates count; `part` names one of several tables."""
    for timing in timings:
        bench.record(
            contestant=timing.contestant.name,
            ours=timing.contestant.ours,
            floor=timing.contestant.floor,
            rows=rows,
            seconds=timing.wall,
            cpu_seconds=timing.cpu,
            median=timing.median,
            **values,
        )


def report(bench: Bench, timings: Sequence[Timing], rows: int, cpu: bool = True, **values: Any) -> None:
    """Print the table of one case, fastest first, and record it. `cpu`: all the work was done in this process."""
    record(bench, timings, rows, **values)
    if bench.tiny:  # who is fastest on so little data says nothing
        return
    fastest = min(timing.median for timing in timings if not timing.contestant.floor)
    ours = min((timing.median for timing in timings if timing.contestant.ours), default=fastest)
    header = ["contestant", "median s", "min - max s", "Mrow/s", "x fastest", "x ours", "cpu s"]
    table = [
        [
            timing.contestant.name,
            f"{timing.median:.3f}",
            f"{min(timing.wall):.3f} - {max(timing.wall):.3f}",
            f"{rows / timing.median / 1e6:.1f}",
            f"{timing.median / fastest:.2f}",
            f"{timing.median / ours:.2f}",
            f"{statistics.median(timing.cpu):.3f}",
        ]
        for timing in sorted(timings, key=lambda timing: timing.median)
    ]
    columns = len(header) if cpu else len(header) - 1
    print(f"\n{text_table(header[:columns], [cells[:columns] for cells in table])}\n\n{_verdict(timings)}", flush=True)


def _verdict(timings: Sequence[Timing]) -> str:
    """Say in one line who won against whom."""
    ours = min((each for each in timings if each.contestant.ours), key=lambda each: each.median, default=None)
    others = [each for each in timings if not each.contestant.ours and not each.contestant.floor]
    if ours is None or not others:
        return ""
    best = min(others, key=lambda each: each.median)
    ratio = best.median / ours.median
    if ratio >= 1:
        return f"{ours.contestant.name}: {ratio:.2f} times as fast as the next, {best.contestant.name}"
    return f"{ours.contestant.name} LOSES: takes {1 / ratio:.2f} times as long as {best.contestant.name}"


@contextmanager
def step(text: str) -> Iterator[None]:
    """Tell on stderr what is being done, and how long it took."""
    print(f"  {text} ...", end="", file=sys.stderr, flush=True)
    started = time.perf_counter()
    try:
        yield
    except BaseException:
        print(file=sys.stderr, flush=True)
        raise
    print(f" {time.perf_counter() - started:.2f} s", file=sys.stderr, flush=True)
