"""Reports the cases of one seed that differ."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from tests.support.harness.reproducing import write_program
from tests.support.harness.tally import Tally
from tests.support.harness.verdict import Verdict

Case = TypeVar("Case")


class Hunt(ABC, Generic[Case]):
    """Reports each case that differs, shrinks it, and writes it as a program that runs it alone.

    `out` is the folder for programs, None for none. `patience` is the time limit of each shrinking in seconds; 0 omits
    it. `report` may run in several threads.
    """

    def __init__(self, tally: Tally, out: Path | None, patience: float) -> None:
        self.found: list[str] = []
        self._out, self._patience = out, patience
        self._tally, self._started = tally, time.monotonic()
        self._lock = Lock()

    @abstractmethod
    def describe(self, case: Case) -> str:
        """Return a case as text for a report."""

    @abstractmethod
    def shrink(self, case: Case, is_wrong: Callable[[Case], bool], patience: float) -> Case:
        """Return the smallest case found that is wrong."""

    @abstractmethod
    def render_program(self, case: Case, verdict: Any, alone: str) -> str:
        """Return the program of a case, which the command `alone` draws again."""

    def report(self, case: Any, verdict: Verdict, alone: str, run: Callable[[Case], Verdict]) -> None:
        """Report a case that differs; `run` runs smaller ones."""
        lines = [f"DIFFERENT, alone: {alone}", f"{verdict.kind}: {verdict.told}", self.describe(case)]
        if self._patience:
            smaller = self.shrink(case, lambda other: _is_alike(run, other, verdict), self._patience)
            again = run(smaller)
            lines += [f"the same, shrunk: {again.kind}: {again.told}", self.describe(smaller)]
            case, verdict = (smaller, again) if again.kind else (case, verdict)
        if self._out is not None:
            program = self.render_program(case, verdict, alone)
            lines.append(f"written to {write_program(self._out, case.name, program)}")
        with self._lock:
            self.found.append("\n".join(lines))
            print(self.found[-1], flush=True)

    def print_progress(self, detail: str = "") -> None:
        """Print how many queries have run."""
        seconds, different = time.monotonic() - self._started, self._tally.differences.total()
        print(
            f"  {self._tally.queries:,} queries in {seconds:,.0f} s{detail}, {different} different",
            file=sys.stderr,
            flush=True,
        )


def _is_alike(run: Callable[[Any], Verdict], case: object, verdict: Verdict) -> bool:
    """Return whether a smaller case differs for the same reason."""
    try:
        found = run(case)
    except Exception:  # its tables cannot be written
        return False
    return (found.kind, found.origin) == (verdict.kind, verdict.origin)
