"""Runs the queries of one seed by their numbers, counts them, and reports those that differ."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING, Any

from tests.stream_harness.cases import Case, make_case
from tests.stream_harness.reproducing import reproducer
from tests.stream_harness.running import Runner
from tests.stream_harness.shrinking import shrunk
from tests.stream_harness.tally import Tally
from tests.support.harness import hunt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPORTED = 25
"""Number of queries between two progress messages."""


class Hunt(hunt.Hunt[Case]):
    """Runs queries of one seed, perhaps of some kinds only."""

    def __init__(
        self, seed: int, kinds: Sequence[str] = (), out: Path | None = None, patience: float = 0.0, quick: bool = False
    ) -> None:
        self.tally = Tally()
        super().__init__(self.tally, out, patience)
        self._seed, self._kinds, self._quick = seed, kinds, quick

    def run(self, spark: SparkSession, folder: Path, numbers: Sequence[int], threads: int) -> None:
        """Run queries in several threads with one session each, because a small batch mostly waits."""
        own = local()

        def one(number: int) -> None:
            if not hasattr(own, "runner"):
                with self._lock:
                    own.runner = Runner(spark.newSession(), folder / f"thread {len([*folder.iterdir()])}")
            self._one(own.runner, number)
            if self.tally.queries % _REPORTED == 0:
                self.print_progress()

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
            alone = f"python -m tests.stream_harness --seed {self._seed} --only {number}{' --quick' * self._quick}"
            self.report(case, verdict, alone, runner.run)

    def describe(self, case: Case) -> str:
        """Return a description of a case without its streams."""
        return f"{case.kind}: {case.query}, runs {case.runs}, checkpoint {case.checkpoint!r}, settings {case.settings}"

    def shrink(self, case: Case, is_wrong: Callable[[Case], bool], patience: float) -> Case:
        return shrunk(case, is_wrong, patience)

    def render_program(self, case: Case, verdict: Any, alone: str) -> str:
        return reproducer(case, verdict, alone)
