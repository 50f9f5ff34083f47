"""Times of jobs with and without their start, from a job over all rows and a job without work."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.harness import Bench, WrongAnswerError, seconds_of


def seconds_of_job(job: Callable[[], object], expected: object) -> float:
    """Run a job; return its seconds.

    Raises
    ------
    WrongAnswerError
        Its answer is not `expected`.
    """
    found: list[object] = []
    seconds = seconds_of(lambda: found.append(job()))
    if found != [expected]:
        raise WrongAnswerError(f"{found[0]}, and not {expected}")
    return seconds


@dataclass(frozen=True)
class Started:
    """Seconds of jobs over all rows (`whole`), and of jobs without work (`start`)."""

    whole: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)

    def rates(self, rows: int) -> tuple[float, float]:
        """Return rows per second, with and without the start: medians, without the first run if there are several."""
        whole, start = (statistics.median(seconds[1:] or seconds) for seconds in (self.whole, self.start))
        return rows / whole, rows / (whole - start)

    def record(self, bench: Bench, contestant: str, rows: int, **values: Any) -> None:
        """Record the seconds of both jobs, without the first run if there are several."""
        whole, start = (seconds[1:] or seconds for seconds in (self.whole, self.start))
        ours = contestant.startswith("sparkext")
        bench.record(contestant=contestant, ours=ours, rows=rows, seconds=whole, start_seconds=start, **values)
