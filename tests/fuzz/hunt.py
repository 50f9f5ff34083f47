"""Runs the queries of one seed by their numbers, counts them, and reports those that differ."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case, make_case
from tests.fuzz.reproducing import reproducer
from tests.fuzz.running import Runner
from tests.fuzz.shrinking import shrunk
from tests.fuzz.tables import make_universe
from tests.fuzz.tally import Tally
from tests.support.harness import hunt

QUERIES_PER_UNIVERSE = 40


class Hunt(hunt.Hunt[Case]):
    """Runs queries of one seed in the sessions of a runner."""

    def __init__(self, runner: Runner, seed: int, out: Path | None = None, patience: float = 0.0) -> None:
        self.tally = Tally()
        super().__init__(self.tally, out, patience)
        self._runner, self._seed = runner, seed

    def run(self, numbers: Iterable[int], match: str = "", shape: str = "", show: bool = False) -> None:
        """Run queries of a shape whose SQL matches; consecutive numbers share their tables."""
        by_universe: dict[int, list[int]] = {}
        for number in numbers:
            by_universe.setdefault(number // QUERIES_PER_UNIVERSE, []).append(number)
        for part, of_it in by_universe.items():
            universe = make_universe(f"{self._seed}/{part}")
            different = []
            for number in of_it:
                case = make_case(universe, number)
                if shape not in ("", case.shape) or not re.search(match, case.query.sql(), re.DOTALL):
                    continue
                verdict = self._runner.run(case)
                self.tally.count(case, verdict)
                if show:
                    print(case.query.sql(), verdict.ours.plan, sep="\n\n")
                if verdict.kind:
                    print(f"  number {number} differs: {verdict.kind}", file=sys.stderr, flush=True)
                    different.append((number, case, verdict))
            for number, case, verdict in different:
                alone = f"python -m tests.fuzz --seed {self._seed} --only {number}"
                self.report(case, verdict, alone, self._runner.run)
            self.print_progress(f", up to number {of_it[-1]}")

    def describe(self, case: Case) -> str:
        return f"{case.query.sql()}\n{case.settings}"

    def shrink(self, case: Case, is_wrong: Callable[[Case], bool], patience: float) -> Case:
        return shrunk(case, is_wrong, patience)

    def render_program(self, case: Case, verdict: Any, alone: str) -> str:
        return reproducer(case, verdict, alone)
