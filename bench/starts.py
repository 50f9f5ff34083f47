"""What a job takes with its start and without: beside one with all that there is, one with nothing to do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.harness import Bench, WrongAnswerError


def seconds_of(job: Callable[[], object], expected: object) -> float:
    """Run a job; return how long it takes.

    Raises
    ------
    WrongAnswerError
        It gives something else.
    """
    began = time.perf_counter()
    found = job()
    seconds = time.perf_counter() - began
    if found != expected:
        raise WrongAnswerError(f"{found}, and not {expected}")
    return seconds


@dataclass(frozen=True)
class Started:
    """Seconds of jobs over all rows, and of those with nothing to do."""

    whole: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)

    def rates(self, rows: int) -> tuple[float, float]:
        """Return rows a second, with the start and without: medians behind the first runs, if there are others."""
        whole, start = (statistics.median(seconds[1:] or seconds) for seconds in (self.whole, self.start))
        return rows / whole, rows / (whole - start)

    def record(self, bench: Bench, contestant: str, rows: int, **values: Any) -> None:
        """Write the seconds of both jobs, of all runs but the first, if there are others."""
        whole, start = (seconds[1:] or seconds for seconds in (self.whole, self.start))
        ours = contestant.startswith("sparkext")
        bench.record(contestant=contestant, ours=ours, rows=rows, seconds=whole, start_seconds=start, **values)
