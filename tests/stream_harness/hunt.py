"""Runs the queries of one seed by their numbers, counts them, and reports those that differ."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock, local
from typing import TYPE_CHECKING

from tests.stream_harness import reproducing
from tests.stream_harness.cases import Case, make_case
from tests.stream_harness.running import Runner, Verdict
from tests.stream_harness.shrinking import shrunk
from tests.stream_harness.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPORTED = 25
"""Number of queries between two progress messages."""


class Hunt:
    """Runs queries of one seed, perhaps of some kinds only.

    `out` is the folder for programs, `patience` the time limit of each shrinking in seconds.
    """

    def __init__(
        self, seed: int, kinds: Sequence[str] = (), out: Path | None = None, patience: float = 0.0, quick: bool = False
    ) -> None:
        self.tally = Tally()
        self.found: list[str] = []
        self._seed, self._kinds, self._quick = seed, kinds, quick
        self._out, self._patience = out, patience
        self._lock = Lock()

    def run(self, spark: SparkSession, folder: Path, numbers: Sequence[int], threads: int) -> None:
        """Run queries in several threads with one session each, because a small batch mostly waits."""
        own, started = local(), time.monotonic()

        def one(number: int) -> None:
            if not hasattr(own, "runner"):
                with self._lock:
                    own.runner = Runner(spark.newSession(), folder / f"thread {len([*folder.iterdir()])}")
            self._one(own.runner, number)
            if self.tally.queries % _REPORTED == 0:
                seconds, different = time.monotonic() - started, self.tally.differences.total()
                print(
                    f"  {self.tally.queries:,} queries in {seconds:,.0f} s, {different} different",
                    file=sys.stderr,
                    flush=True,
                )

        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(one, number) for number in numbers]:
                future.result()

    def _one(self, runner: Runner, number: int) -> None:
        case = make_case(self._seed, number, self._quick)
        if self._kinds and case.kind not in self._kinds:
            return
        verdict = runner.run(case)
        with self._lock:
            self.tally.count(case, verdict)
        if verdict.kind:
            print(f"  number {number} differs: {verdict.kind}", file=sys.stderr, flush=True)
            self._report(runner, number, case, verdict)

    def _report(self, runner: Runner, number: int, case: Case, verdict: Verdict) -> None:
        alone = f"python -m tests.stream_harness --seed {self._seed} --only {number}{' --quick' * self._quick}"
        lines = [f"DIFFERENT, alone: {alone}", f"{verdict.kind}: {verdict.told}", _short(case)]
        if self._patience:
            smaller = shrunk(case, self._differs_like(runner, verdict), self._patience)
            again = runner.run(smaller)
            lines += [f"the same, shrunk: {again.kind}: {again.told}", _short(smaller)]
            case, verdict = (smaller, again) if again.kind else (case, verdict)
        if self._out is not None:
            lines.append(f"written to {reproducing.write(self._out, case, verdict, alone)}")
        with self._lock:
            self.found.append("\n".join(lines))
            print(self.found[-1], flush=True)

    def _differs_like(self, runner: Runner, verdict: Verdict) -> Callable[[Case], bool]:
        def is_wrong(case: Case) -> bool:
            found = runner.run(case)
            return found.kind == verdict.kind and _origin(found) == _origin(verdict)

        return is_wrong


def _origin(verdict: Verdict) -> str:
    """Return the part of a description that is independent of rows: the location of an error."""
    return verdict.told.splitlines()[-1] if verdict.kind == "error" else ""


def _short(case: Case) -> str:
    """Return a description of a case without its streams."""
    return f"{case.kind}: {case.query}, runs {case.runs}, checkpoint {case.checkpoint!r}, settings {case.settings}"
