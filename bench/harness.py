"""The harness of all suites: alternating runs, answers checked before times, one table, JSON lines.

A case runs in its own process, pinned to the number of cores that it names, so that thread pools, memory pools and JVMs
of one case do not affect another. Within that process, contestants alternate run by run, so that drift (clock rate,
neighbours, page cache) affects all of them equally.
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

from sparkext.wording import format_table


class WrongAnswerError(Exception):
    """The answers of contestants differ, so nothing is timed."""


TINY = 100
"""Factor by which data is smaller in a run that only shows that a case works."""


@dataclass(frozen=True)
class Bench:
    """One run of one case, at a scale factor, on a number of threads. `tiny`: only to show that the case works."""

    case: str
    scale_factor: float
    threads: int
    runs: int
    data: Path
    results: Path | None = None
    tiny: bool = False

    def sized(self, rows: int) -> int:
        """Return the number of rows to generate: `rows`, or a small part of them if `tiny`."""
        return max(1, rows // TINY) if self.tiny else rows

    def folder(self, name: str) -> Path:
        """Return the folder of the tables generated under this name, next to the folder of TPC-H."""
        return self.data.parent / (f"{name}-tiny" if self.tiny else name)

    def record(self, **values: Any) -> None:
        """Append one result to the results file of the run, if there is one, after its first line of facts."""
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
    """A benchmark that `python -m bench --list` shows and `python -m bench NAME` runs.

    `scaled`: runs once per scale factor of TPC-H. `threaded`: runs once per number of threads, by default these; if
    empty, it runs on `threads` cores (None: on all). `named`: runs only if named, because it needs a download, takes
    long, or adds little to similar cases.
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
    """`run` does the whole job once and discards the result; `answer` does it too, and returns a value to compare.

    `ours` marks this package, with which the others are compared. Only the fastest contestant of a `group`, which are
    forms of one engine, is timed. A `floor` does only a part of the job, as a lower bound, and is not ranked.
    """

    name: str
    run: Callable[[], object]
    answer: Callable[[], object]
    ours: bool = False
    group: str = ""
    floor: bool = False


def same(name: str, run: Callable[[], object], ours: bool = False, group: str = "") -> Contestant:
    """Return a contestant whose timed job also returns its answer."""
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
    """Compute the answer of every contestant once, which also compiles and warms up; return the common answer.

    Raises
    ------
    WrongAnswerError
        The answers differ; the message lists them.
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
    """Time the contestants alternately, after a warm-up, which also selects the fastest of each group.

    On tiny data, only contestants whose `run` is not their `answer` are run: `verify` has run the others.
    """
    if bench.tiny:
        contestants = [contestant for contestant in contestants if contestant.run is not contestant.answer]
    timings = [Timing(contestant) for contestant in fastest_forms(contestants, warm_up(bench, contestants))]
    take_turns(timings, bench.runs)
    return timings


def warm_up(bench: Bench, contestants: Sequence[Contestant]) -> dict[str, float]:
    """Run the contestants once; return the seconds of each by name, or nothing on tiny data.

    Contestants whose `run` is their `answer` are warm after `verify`: they run again only if they have a group.
    """
    seconds: dict[str, float] = {}
    for contestant in () if bench.tiny else contestants:
        if contestant.run is contestant.answer and not contestant.group:
            continue
        with step(f"warming up: {contestant.name}"):
            seconds[contestant.name], _ = _timed(contestant.run)
    return seconds


def fastest_forms(contestants: Sequence[Contestant], warm: Mapping[str, float]) -> list[Contestant]:
    """Return the contestants to time, of each group the fastest in the warm-up; print the other ones.

    Without a warm-up, the first contestant of a group is timed.
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
    """Time each contestant `runs` times, in rounds of one run each."""
    for number in range(1, runs + 1):
        for timing in timings:
            with step(f"run {number} of {runs}: {timing.contestant.name}"):
                wall, cpu = _timed(timing.contestant.run)
            timing.wall.append(wall)
            timing.cpu.append(cpu)


def seconds_of(run: Callable[[], object]) -> float:
    """Return the wall seconds of a run."""
    return _timed(run)[0]


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def record(bench: Bench, timings: Sequence[Timing], rows: int, **values: Any) -> None:
    """Append the timings of one table as JSON lines. Rates are based on `rows`; `part` names one of several tables."""
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
    """Print the table of one case, fastest first, and record it. `cpu`: all work is done in this process."""
    record(bench, timings, rows, **values)
    if bench.tiny:  # times of tiny data are meaningless
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
    print(
        f"\n{format_table(header[:columns], [cells[:columns] for cells in table])}\n\n{_verdict(timings)}", flush=True
    )


def _verdict(timings: Sequence[Timing]) -> str:
    """Return one line that compares this package with the fastest other contestant."""
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
    """Print the name of a step and its duration on stderr."""
    print(f"  {text} ...", end="", file=sys.stderr, flush=True)
    started = time.perf_counter()
    try:
        yield
    except BaseException:
        print(file=sys.stderr, flush=True)
        raise
    print(f" {time.perf_counter() - started:.2f} s", file=sys.stderr, flush=True)
