"""Checks that every test function has passed somewhere: `python -m tests.support.outcomes`, after the runs of a gate.

A run writes the best outcome of each test function to a file of its own in the folder that SPARKEXT_TEST_OUTCOMES
names. Runs that tests start and runs on other Sparks inherit the variable, so a function that is skipped in one run may
pass in another.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.support.combinations import function_of

FOLDER = "SPARKEXT_TEST_OUTCOMES"

ALLOWED: dict[str, str] = {}
"""Functions that are allowed not to pass, each with its reason."""

_RANKS = ("failed", "skipped", "passed")


class Outcomes:
    """A plugin that records the best outcome of each test function, and of each module that is skipped as a whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_test: dict[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self._by_test[report.nodeid] = report.outcome

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        so_far = self._by_test.get(report.nodeid, "passed")
        self._by_test[report.nodeid] = min(so_far, report.outcome, key=_RANKS.index)

    def pytest_sessionfinish(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        outcomes = best_of(self._by_test.items())
        (self._folder / f"{uuid.uuid4()}.json").write_text(json.dumps(outcomes, indent=0))


def register(config: pytest.Config) -> None:
    """Record the outcomes of this run, if the environment names a folder for them."""
    if FOLDER in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(Path(os.environ[FOLDER])))


def best_of(outcomes: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the best outcome of each function among (test id, outcome) pairs."""
    best: dict[str, str] = {}
    for test, outcome in outcomes:
        function = function_of(test)
        best[function] = max(best.get(function, outcome), outcome, key=_RANKS.index)
    return best


def not_passed(best: Mapping[str, str], allowed: Mapping[str, str]) -> list[str]:
    """Return the complaints: functions that passed nowhere, and entries of `allowed` that are no longer needed."""
    failing = {function: outcome for function, outcome in best.items() if outcome != "passed"}
    complaints = [f"{function}: {failing[function]}" for function in sorted(failing.keys() - allowed.keys())]
    return complaints + [f"{function}: allowed not to pass, but did" for function in sorted(allowed.keys() - failing)]


def main() -> str | int:
    """Print how many functions passed. Return the complaints, or 0."""
    files = sorted(Path(os.environ[FOLDER]).glob("*.json"))
    best = best_of(pair for file in files for pair in json.loads(file.read_text()).items())
    if not best:
        return f"no outcomes in {os.environ[FOLDER]}: run the tests first"
    complaints = not_passed(best, ALLOWED)
    if complaints:
        return "Every test function has to pass in some run. These did not:\n" + "\n".join(complaints)
    print(f"every one of {len(best) - len(ALLOWED):,} test functions passed, in {len(files)} runs of pytest")
    return 0


if __name__ == "__main__":
    sys.exit(main())
