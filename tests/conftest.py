"""Settings that all tests share."""

from __future__ import annotations

import os
import sys

import pytest

from tests.support import outcomes
from tests.support.class_archive import archive_options
from tests.support.combinations import WHOLE, left_out, runs_whole

# Workers must run the Python of the tests, whichever Python `python3` is on this machine.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

# For the driver of every session that tests start, including sessions in other processes.
os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
    [
        # Queries are short and cores are few: the second compiler of a JVM would cost a fifth of the time, more than it
        # saves. Without it, a JVM reserves only a fifth of the usual memory for code. Generated code of hundreds of
        # queries fills it, so that code is evicted and compiled again.
        "-XX:TieredStopAtLevel=1",
        "-XX:ReservedCodeCacheSize=240m",
        # The concurrent collector marks the whole heap whenever Spark allocates a page.
        "-XX:+UseParallelGC",
        # A sixth of a session's start is the verification of the byte code of Spark's own classes.
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-BytecodeVerificationRemote",
        *archive_options(),
    ]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--whole", action="store_true", help="run every combination of parameters: tests/support/combinations.py"
    )


def pytest_configure(config: pytest.Config) -> None:
    outcomes.register(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # A JVM that was started without the extension cannot load it later.
    items.sort(key=lambda item: not item.nodeid.startswith("tests/extension/"))
    if config.getoption("whole"):
        os.environ[WHOLE] = "1"  # also for processes that tests start
    if not runs_whole():
        unwanted = left_out(items, config.args)
        config.hook.pytest_deselected(items=[item for item in items if item in unwanted])
        items[:] = [item for item in items if item not in unwanted]
