"""Records the results of a test run by folder, for the page on versions.

    pytest -p tests.support.record --record docs/support.jsonl tests/extension tests/api …

Each line of the file is for one version of Spark. A run replaces the results of its folders in that line.
"""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("numba", "numpy", "pandas", "pyarrow")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="the file for the results of this run")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--record")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Record(path))


class _Record:
    """Counts the outcome of each test, which is the worst outcome of its phases."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worst = ("passed", "skipped", "failed")
        so_far = self._outcomes.get(report.nodeid, "passed")
        self._outcomes[report.nodeid] = max(so_far, report.outcome, key=worst.index)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            keep(self._path, _environment(), counted(self._outcomes.items()))


def counted(outcomes: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Count the outcomes of tests by folder; tests outside of folders belong to the whole package."""
    folders: dict[str, Counter[str]] = {}
    for test, outcome in outcomes:
        folder, *rest = test.partition("::")[0].removeprefix("tests/").split("/")
        folders.setdefault(folder if rest else "package", Counter())[outcome] += 1
    return {folder: dict(sorted(counts.items())) for folder, counts in sorted(folders.items())}


def keep(path: Path, environment: dict[str, Any], folders: dict[str, dict[str, int]]) -> None:
    """Store the results of a run in the line of its Spark version."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    by_spark = {line["spark"]: line for line in lines}
    before = by_spark.get(environment["spark"], {}).get("folders", {})
    by_spark[environment["spark"]] = {**environment, "folders": dict(sorted({**before, **folders}.items()))}
    ordered = sorted(by_spark.values(), key=lambda line: [-int(part) for part in line["spark"].split(".")])
    path.write_text("".join(json.dumps(line) + "\n" for line in ordered))


def _environment() -> dict[str, Any]:
    return {
        "spark": version("pyspark"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {package: version(package) for package in PACKAGES},
        "date": date.today().isoformat(),
    }
